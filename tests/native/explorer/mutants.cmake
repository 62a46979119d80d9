# Seeded bugs: a source of the core in which one piece of text is replaced, and the test that must find a fault in it.
# The piece must be there exactly once, so that nobody changes the core and leaves a mutant behind that changes nothing.
function(add_mutant name tests test file piece with)
  set(source ${PROJECT_SOURCE_DIR}/shmreplay/core/${file})
  file(READ ${source} text)
  string(FIND "${text}" "${piece}" first)
  string(FIND "${text}" "${piece}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "mutant ${name}: ${file} must have this exactly once: ${piece}")
  endif()
  string(REPLACE "${piece}" "${with}" text "${text}")
  set(mutated ${CMAKE_BINARY_DIR}/mutants/${name}.cc)
  file(CONFIGURE OUTPUT ${mutated} CONTENT "${text}" @ONLY)
  set_source_files_properties(${mutated} PROPERTIES COMPILE_OPTIONS -w)  # half a function may be left
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  add_explorer(mutant_${name} ${tests}_objects ${mutated})
  add_test(NAME mutant_${name} COMMAND mutant_${name} ${test})
  set_tests_properties(mutant_${name} PROPERTIES TIMEOUT 1500 ENVIRONMENT SHMREPLAY_LONG=1 PASS_REGULAR_EXPRESSION "fault found: ")
endfunction()

# ---- the lock ----------------------------------------------------------------------------------------------------
add_mutant(mutex_left_inconsistent explored_lock_test happens_whole arena/robust_lock.cc
           [[return pthread_mutex_consistent(&block.mutex) == 0;]] [[return &block != nullptr;]])
add_mutant(hold_seq_moved_after_the_unlock explored_lock_test hand_over arena/robust_lock.cc
           [[  SHMREPLAY_FAULT("lock.leaving");
  pthread_mutex_unlock(&block.mutex);
  SHMREPLAY_FAULT("lock.left");]]
           [[  block.hold_seq.fetch_sub(1);
  pthread_mutex_unlock(&block.mutex);
  block.hold_seq.fetch_add(1);]])
add_mutant(hold_seq_even_while_the_index_changes explored_lock_test hand_over arena/robust_lock.cc
           [[block.hold_seq.store((seq + 1) | 1,]] [[block.hold_seq.store((seq + 1) & ~1ull,]])
add_mutant(holder_named_after_hold_seq_is_odd explored_lock_test stopped arena/robust_lock.cc
           [[  block.pid.store(pid, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  block.hold_seq.store((seq + 1) | 1, std::memory_order_relaxed);]]
           [[  block.hold_seq.store((seq + 1) | 1, std::memory_order_relaxed);
  block.pid.store(pid, std::memory_order_relaxed);]])
add_mutant(deadline_looked_at_only_while_hold_seq_is_odd explored_lock_test stopped arena/robust_lock.cc
           [[if (is_stuck && wait_.deadline_ns != kForever && now_ns() >= wait_.deadline_ns) {]]
           [[if (is_stuck && (before.hold_seq & 1) != 0 && now_ns() >= wait_.deadline_ns) {]])
add_mutant(roll_back_from_the_oldest_entry explored_lock_test happens_whole arena/hold.cc
           [[for (uint64_t i = length; i-- > 0;) {]] [[for (uint64_t i = 0; i < length; ++i) {]])
add_mutant(unlocked_before_the_commit explored_lock_test hand_over arena/hold.cc
           [[if (length_ > 0) arena_.log().length.store(0, std::memory_order_relaxed);]] [[]])
add_mutant(log_forgotten_before_it_is_rolled_back explored_lock_test happens_whole arena/hold.cc
           [[  const uint64_t length = log.length.load(std::memory_order_relaxed);]]
           [[  const uint64_t length = log.length.exchange(0);]])

# ---- sleeps and wake-ups -----------------------------------------------------------------------------------------
add_mutant(a_side_is_not_woken explored_waits_test wait_for_each_other arena/hold.cc
           [[      futex_wake(arena_.table(index).record->sides[side].futex, (wake_all_ >> index & 1) != 0 ? kWakeAll : 1);]]
           [[      static_cast<void>(index);]])
add_mutant(a_side_is_woken_without_a_bump explored_waits_test wait_for_each_other arena/hold.cc
           [[t.sides[side].futex.fetch_add(1, std::memory_order_seq_cst);]] [[]])
add_mutant(news_is_told_without_a_bump explored_waits_test hear_of_the_insert arena/hold.cc
           [[news.futex.fetch_add(1, std::memory_order_seq_cst);]] [[]])
add_mutant(news_is_awaited_by_nobody explored_waits_test hear_of_the_insert items/news.cc
           [[t.news.is_awaited.store(1, std::memory_order_relaxed);]] [[]])

# ---- leases and room ---------------------------------------------------------------------------------------------
add_mutant(chunk_waiters_are_not_woken explored_leases_test woken_by_the_reader arena/chunk_wait.cc
           [[  futex_bump(s.chunk_futex);]] [[]])
add_mutant(lease_dropped_after_its_wake explored_leases_test woken_by_the_reader chunks/leases.cc
           [[own.generation) clear(slot);
  slot_ = kNone;
  count_ = 0;
  wake_chunk_waiters(arena_);]]
           [[own.generation) {
    wake_chunk_waiters(arena_);
    clear(slot);
  }
  slot_ = kNone;
  count_ = 0;]])
add_mutant(leases_are_not_looked_at explored_leases_test woken_by_the_reader chunks/chunk_pool.cc
           [[ || std::binary_search(named.begin(), named.end(), c);]] [[;]])
add_mutant(leases_of_the_dead_stay explored_leases_test reader_dies sessions/sessions.cc
           [[if (!drop_leases_of(arena_, index_, generation_, leases_, kSlice)) return false;]] [[]])
