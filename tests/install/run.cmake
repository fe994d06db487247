# Installs the build in BUILD_DIR under WORK_DIR, builds the project beside this file against it, and runs its program.
file(REMOVE_RECURSE ${WORK_DIR})
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE printed ERROR_VARIABLE printed)
  set(printed "${printed}" PARENT_SCOPE)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}: exit code ${code}\n${printed}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK_DIR}/build -DCMAKE_MAKE_PROGRAM=${NINJA}
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DPython_EXECUTABLE=${PYTHON})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/alone file://${WORK_DIR}/store)
if(NOT printed MATCHES "answer: 42")
  message(FATAL_ERROR "printed: ${printed}")
endif()
