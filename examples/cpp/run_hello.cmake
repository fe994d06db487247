# Runs both ranks of the example at once and checks what rank 0 prints.
string(RANDOM LENGTH 4 ALPHABET 0123456789 digits)
math(EXPR port "20000 + ${digits}")
execute_process(
  COMMAND ${HELLO} 1 tcp://127.0.0.1:${port}
  COMMAND ${HELLO} 0 tcp://127.0.0.1:${port}
  OUTPUT_VARIABLE printed RESULTS_VARIABLE codes TIMEOUT 50)
if(NOT codes STREQUAL "0;0" OR NOT printed MATCHES "2 \\* 1 = 2, kept by worker1: 4")
  message(FATAL_ERROR "exit codes ${codes}, printed: ${printed}")
endif()
