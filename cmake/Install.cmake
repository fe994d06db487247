# What `cmake --install` puts where: the library, its headers, and the package file for find_package(gradwire).
include(CMakePackageConfigHelpers)
set(GRADWIRE_PACKAGE_FILES ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)

install(TARGETS gradwire EXPORT gradwireTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gradwire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT gradwireTargets NAMESPACE gradwire:: DESTINATION ${GRADWIRE_PACKAGE_FILES})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradwireConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/gradwireConfig.cmake
                              INSTALL_DESTINATION ${GRADWIRE_PACKAGE_FILES})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradwireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradwireConfig.cmake ${PROJECT_BINARY_DIR}/gradwireConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/TorchTargets.cmake
        DESTINATION ${GRADWIRE_PACKAGE_FILES})
