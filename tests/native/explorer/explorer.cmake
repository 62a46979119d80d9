# The explorer's programs: the core once more, compiled so that each access to memory is a call that hooks.cc answers, and
# linked so that kernel.cc answers for mutexes, futexes, clocks and pidfds. ThreadSanitizer's own library is not linked.
set(explored_sources ${core_sources})
list(FILTER explored_sources EXCLUDE REGEX "/core/(checkpoint|read)/|/core/write/")
list(APPEND explored_sources ${PROJECT_SOURCE_DIR}/shmreplay/core/write/room.cc
                             ${PROJECT_SOURCE_DIR}/shmreplay/core/write/insert_holds.cc)
add_library(explored_options INTERFACE)
target_compile_options(explored_options INTERFACE "SHELL:-iquote ${PROJECT_SOURCE_DIR}" -UNDEBUG -O1
                       "SHELL:-iquote ${PROJECT_SOURCE_DIR}/shmreplay/core" "SHELL:-iquote ${PROJECT_SOURCE_DIR}/tests/native")
target_link_libraries(explored_options INTERFACE Threads::Threads shmreplay_options)
# Locals begin as zeros: what a stack happens to hold must not tell two states apart.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-ftrivial-auto-var-init=zero can_zero_locals)
if(can_zero_locals)
  target_compile_options(explored_options INTERFACE -ftrivial-auto-var-init=zero)
endif()
add_library(explored_core STATIC ${explored_sources})
target_compile_options(explored_core PRIVATE -fsanitize=thread)
target_link_libraries(explored_core PRIVATE explored_options)

set(explorer_folder ${PROJECT_SOURCE_DIR}/tests/native/explorer)
add_library(explorer STATIC ${explorer_folder}/explorer.cc ${explorer_folder}/hooks.cc ${explorer_folder}/kernel.cc
                            ${PROJECT_SOURCE_DIR}/tests/native/support/harness.cc)
# A jump from stack to stack is what a fiber is.
target_compile_options(explorer PRIVATE -U_FORTIFY_SOURCE)
target_link_libraries(explorer PRIVATE explored_options)

set(wrapped_calls "")
foreach(call pthread_mutex_lock pthread_mutex_trylock pthread_mutex_clocklock pthread_mutex_unlock
             pthread_mutex_consistent clock_gettime getpid close syscall
             _ZN9shmreplay10RobustLock9leave_gapERKNS_9LockBlockE)
  list(APPEND wrapped_calls "-Wl,--wrap=${call}")
endforeach()

# What every program has, compiled once.
add_library(explored_arena OBJECT ${explorer_folder}/explored_arena.cc)
target_compile_options(explored_arena PRIVATE -fsanitize=thread)
target_link_libraries(explored_arena PRIVATE explored_options)

# A program of the tests in `objects`. Sources that follow stand in for those of the core with the same functions.
function(add_explorer program objects)
  add_executable(${program} $<TARGET_OBJECTS:${objects}> $<TARGET_OBJECTS:explored_arena> ${ARGN})
  target_compile_options(${program} PRIVATE -fsanitize=thread)
  target_link_libraries(${program} PRIVATE explored_options explorer explored_core explorer)
  target_link_options(${program} PRIVATE ${wrapped_calls})
endfunction()

file(GLOB explored_tests CONFIGURE_DEPENDS ${explorer_folder}/*_test.cc)
foreach(source IN LISTS explored_tests)
  get_filename_component(name ${source} NAME_WE)
  add_library(${name}_objects OBJECT ${source})
  target_compile_options(${name}_objects PRIVATE -fsanitize=thread)
  target_link_libraries(${name}_objects PRIVATE explored_options)
  add_explorer(${name} ${name}_objects)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 1500)
endforeach()

# Seeded bugs. Each must be found, or the explorer proves nothing.
include(${explorer_folder}/mutants.cmake)
