# Writes scikit-learn's digits as text, runs the three ranks of the example at once, and checks the accuracy it prints.
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
set(write "import sys, numpy, sklearn.datasets as d; x = d.load_digits(); numpy.savetxt(sys.argv[1], \
numpy.column_stack([x.data, x.target]), fmt='%d', delimiter=',')")
execute_process(COMMAND ${PYTHON} -c "${write}" ${WORK_DIR}/digits.csv COMMAND_ERROR_IS_FATAL ANY)
# The driver last: only the last command's output is kept.
execute_process(
  COMMAND ${PROGRAM} 0 file://${WORK_DIR}/store ${WORK_DIR}/digits.csv
  COMMAND ${PROGRAM} 2 file://${WORK_DIR}/store ${WORK_DIR}/digits.csv
  COMMAND ${PROGRAM} 1 file://${WORK_DIR}/store ${WORK_DIR}/digits.csv
  OUTPUT_VARIABLE printed RESULTS_VARIABLE codes TIMEOUT 180)
string(REGEX MATCH "accuracy: ([01]\\.[0-9]+)\n$" found "${printed}")
if(NOT codes STREQUAL "0;0;0" OR NOT found OR CMAKE_MATCH_1 LESS 0.95)
  message(FATAL_ERROR "exit codes ${codes}, printed: ${printed}")
endif()
message(STATUS "${found}")
