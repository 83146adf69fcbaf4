# make install: programs, library, headers, the CMake package flux2 and a pkg-config file. The component "library" is everything
# except the programs.
include(CMakePackageConfigHelpers)

install(TARGETS flux2-cli RUNTIME)
if(FLUX2_BUILD_CONVERT)
    install(TARGETS flux2-convert RUNTIME)
endif()
if(FLUX2_BUILD_SERVER)
    install(TARGETS flux2-server RUNTIME)
endif()
if(FLUX2_BUILD_TRAIN)
    install(TARGETS flux2-train RUNTIME)
endif()
if(FLUX2_RPC)
    install(TARGETS flux2-rpc-server RUNTIME)
endif()
install(TARGETS flux2 EXPORT flux2-targets
    ARCHIVE COMPONENT library LIBRARY COMPONENT library RUNTIME COMPONENT library)
install(DIRECTORY ${FLUX2_RECORDED}/klein/ DESTINATION ${CMAKE_INSTALL_DATADIR}/flux2/selftest)
install(DIRECTORY models/tiny/ DESTINATION ${CMAKE_INSTALL_DATADIR}/flux2/models/tiny FILES_MATCHING PATTERN "*.gguf")
install(FILES models/models.json DESTINATION ${CMAKE_INSTALL_DATADIR}/flux2/models)
install(DIRECTORY flux2/include/flux2 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)
install(EXPORT flux2-targets NAMESPACE flux2:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/flux2 COMPONENT library)

configure_package_config_file(cmake/flux2-config.cmake.in ${CMAKE_BINARY_DIR}/flux2-config.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/flux2)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/flux2-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/flux2-config.cmake ${CMAKE_BINARY_DIR}/flux2-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/flux2 COMPONENT library)

# The libraries that a program must link with the static library; the shared library contains them. The prefix is known only
# at install time, so the file is generated then.
if(FLUX2_SHARED)
    set(FLUX2_PC_CFLAGS " -DFLUX2_SHARED")
else()
    if(FLUX2_RPC)
        set(rpc_library " -lggml-rpc")
    endif()
    set(FLUX2_PC_LIBS_PRIVATE "-lutf8proc -lggml${rpc_library} -lggml-cpu -lggml-base -lstdc++ -lm -lpthread")
    set(packages)
    if(FLUX2_HAS_WEBP)
        list(APPEND packages libwebp)
    endif()
    if(FLUX2_HAS_LCMS)
        list(APPEND packages lcms2)
    endif()
    list(JOIN packages ", " FLUX2_PC_REQUIRES_PRIVATE)
    if(GGML_OPENMP_ENABLED)
        string(APPEND FLUX2_PC_LIBS_PRIVATE " ${OpenMP_CXX_FLAGS}")
    endif()
endif()
configure_file(cmake/flux2.pc.in ${CMAKE_BINARY_DIR}/flux2.pc.in @ONLY)
install(CODE "
    file(READ \"${CMAKE_BINARY_DIR}/flux2.pc.in\" text)
    string(REPLACE \"${CMAKE_INSTALL_PREFIX}\" \"\${CMAKE_INSTALL_PREFIX}\" text \"\${text}\")
    file(WRITE \"${CMAKE_BINARY_DIR}/flux2.pc\" \"\${text}\")" COMPONENT library)
install(FILES ${CMAKE_BINARY_DIR}/flux2.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
