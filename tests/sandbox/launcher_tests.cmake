# sandpool-launcher with the real init: the tests play sandpoold. Run as root; skipped otherwise.
if(SP_TESTS)
	add_executable(launcher_compile launcher_compile.c)
	target_link_libraries(launcher_compile PRIVATE sp_flags)
	add_library(sp_launcher_harness STATIC launcher_harness.c)
	target_link_libraries(sp_launcher_harness PUBLIC sp_flags sp_sandbox sp_seccomp
		PRIVATE sp_sanitize)
	target_compile_definitions(sp_launcher_harness PRIVATE
		SP_TEST_INIT="$<TARGET_FILE:sandpool-init>"
		SP_TEST_LAUNCHER="$<TARGET_FILE:sandpool-launcher>"
		SP_TEST_COMPILE="$<TARGET_FILE:launcher_compile>")
	add_dependencies(sp_launcher_harness sandpool-init sandpool-launcher launcher_compile)

	file(GLOB launcher_tests CONFIGURE_DEPENDS launcher_*.c)
	foreach(source IN LISTS launcher_tests)
		get_filename_component(name ${source} NAME_WE)
		if(name MATCHES "^launcher_(compile|harness)$")
			continue()
		endif()
		add_executable(test_${name} ${source})
		target_link_libraries(test_${name} PRIVATE sp_flags sp_sanitize sp_launcher_harness
			sp_launcher PkgConfig::CRITERION)
		target_compile_options(test_${name} PRIVATE ${test_speed} -Wno-pedantic
			-Wno-missing-prototypes -Wno-shadow -Wno-conversion -Wno-cast-qual -Wno-switch-enum)
		add_test(NAME unit.test_${name} COMMAND test_${name} --jobs 2
			--tap=${CMAKE_BINARY_DIR}/results/test_${name}.tap)
		set_tests_properties(unit.test_${name} PROPERTIES TIMEOUT 600)
	endforeach()
	set_tests_properties(unit.test_launcher_lifecycle PROPERTIES COST 45)
	set_tests_properties(unit.test_launcher_dead_server PROPERTIES COST 18)
endif()
