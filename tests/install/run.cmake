# Installs the build in BUILD_DIR under WORK_DIR, builds the project beside this file against it, and runs its program.
file(REMOVE_RECURSE ${WORK_DIR})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE printed ERROR_VARIABLE printed)
  set(printed "${printed}" PARENT_SCOPE)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}: exit code ${code}\n${printed}")
  endif()
endfunction()

# The README's example, made a program.
file(READ ${CMAKE_CURRENT_LIST_DIR}/../../README.md readme)
string(REGEX MATCH "```cpp\n(.*)\n(auto [^`]*)```" ignored "${readme}")
file(WRITE ${WORK_DIR}/readme.cc "${CMAKE_MATCH_1}\nint main() {\n${CMAKE_MATCH_2}}\n")

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build -DCMAKE_MAKE_PROGRAM=${NINJA}
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DPython_EXECUTABLE=${PYTHON} -DREADME_EXAMPLE=${WORK_DIR}/readme.cc)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/alone file://${WORK_DIR}/store)
if(NOT printed MATCHES "answer: 42")
  message(FATAL_ERROR "printed: ${printed}")
endif()
