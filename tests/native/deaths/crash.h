// Kills a process at every named point of an operation, one point at a time, and looks at what it left.
//
// The child attaches, sets up, arms the k-th point and performs the operation on the shared mapping; k = 1, 2, ...
// until it survives. After each death the parent takes the lock, which rolls back. Then the index must be byte for byte
// what it was between two holds: the words change only at commits.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "support/fixtures.h"

namespace shmreplay::test {

// Sets up in the child, unarmed, and answers what is to be done under fire. Nothing of it is destroyed afterwards.
using Operation = std::function<std::function<void()>(Arena& arena)>;

class CrashLab {
 public:
  explicit CrashLab(const ArenaSpec& spec);

  // Filled by the test before run().
  World world;

  enum class Holds { kOne, kMany, kUnlogged };

  // Performs the operation until it survives; checks everything after each death.
  void run(const char* name, Holds holds, const Operation& operation);

  // As run(), and the process that takes the lock after each of some deaths is killed at every point of its roll-back.
  void run_with_deaths_in_recovery(const char* name, const Operation& operation);

  // As above, of an operation that cannot be rolled back: the next process that takes the lock finishes it.
  void run_with_deaths_in_rebuild(const char* name, const Operation& operation);

  // One child that performs the operation armed with k (0: not armed). Whether it was killed.
  bool perform(const Operation& operation, int64_t k);

  // Takes the lock, as anybody would next.
  void recover();

  // Takes the child's session back, as the daemon does after its death.
  void reap_child();

  void save();     // both segments as they are now
  void restore();  // as they were saved

  // Whether live items show the bytes that actors write; not where the operation changes them.
  bool rows_are_serials = true;

  static void print_totals();

 private:
  // Every word that a hold can write; futex words, call slots, clocks and what only reports read are 0, because they
  // are not undone.
  const std::string& words();
  std::string words_before(const Operation& operation);
  std::vector<const char*> points_of(const Operation& operation);  // by name, in order
  static const char* last_point();                                 // that the last child passed
  void check_after_death(const std::string& death, bool all);
  bool die_in_recovery(const char* name, const Operation& operation, int64_t k, int64_t j, const std::string& expected);

  SessionInfo child_;
  std::string saved_, saved_data_, words_;
};

}  // namespace shmreplay::test
