#include "base/process.h"

#include <csignal>
#include <cstring>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

uint32_t own_pid() { return static_cast<uint32_t>(getpid()); }

uint32_t own_thread() { return static_cast<uint32_t>(syscall(SYS_gettid)); }

void skip(const char* why) { printf("    skipped: %s: %s\n", why, strerror(errno)); }

enum class Proc { kOwn, kOuter };

// Runs `body` as the first process of a pid namespace, with a /proc of its own or the outer one's. Only root may.
void in_a_pid_namespace(Proc proc, const std::function<void()>& body) {
  Child child([&] {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return skip("this user may not make a pid namespace");
    const pid_t first = fork();
    if (first == 0) {
      const bool mounted = proc == Proc::kOuter || (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                                                    mount("proc", "/proc", "proc", 0, nullptr) == 0);
      if (!mounted) {
        skip("this user may not mount /proc");
        _exit(0);
      }
      try {
        body();
      } catch (const std::exception& e) {
        fprintf(stderr, "\n    in a pid namespace: %s\n", e.what());
        _exit(1);
      }
      _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(first, &status, 0), first);
    CHECK_EQ(status, 0);
  });
  child.join();
}

// The next process or thread of this pid namespace gets that pid.
bool choose_next_pid(pid_t pid) {
  FILE* f = fopen("/proc/sys/kernel/ns_last_pid", "we");
  if (f == nullptr) {
    skip("/proc/sys/kernel/ns_last_pid");
    return false;
  }
  fprintf(f, "%d", pid - 1);
  return fclose(f) == 0;
}

}  // namespace

TEST(this_process_is_alive_and_has_a_start_time) {
  const uint64_t start = process_start_time(own_pid());
  CHECK(start > 0);
  CHECK(!process_is_dead(own_pid(), start));
  CHECK(!process_is_dead(own_pid(), 0));
}

TEST(a_pid_that_no_process_has_is_dead) {
  Child child([] {});
  const auto pid = static_cast<uint32_t>(child.pid());
  child.join();
  CHECK(process_is_dead(pid, 1));
  CHECK(process_is_dead(pid, 0));
}

TEST(a_pid_with_another_start_time_belongs_to_another_process) {
  CHECK(process_is_dead(own_pid(), process_start_time(own_pid()) + 1));
}

TEST(a_zombie_is_dead) {
  Child child([] { raise(SIGSTOP); });
  const auto pid = static_cast<uint32_t>(child.pid());
  const uint64_t start = process_start_time(pid);
  child.send(SIGKILL);
  siginfo_t info;
  CHECK_EQ(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);  // ended, and not yet reaped
  CHECK(process_is_dead(pid, start));
}

TEST(a_stopped_process_is_not_dead) {
  Child child([] { pause(); });
  child.stop();
  const auto pid = static_cast<uint32_t>(child.pid());
  CHECK(!process_is_dead(pid, process_start_time(pid)));
}

TEST(a_process_name_with_brackets_and_spaces_does_not_confuse_the_start_time) {
  Child child([] {
    const char name[] = ") x (1 2) 3";
    FILE* f = fopen("/proc/self/comm", "w");
    CHECK(f != nullptr);
    fputs(name, f);
    fclose(f);
    const uint64_t start = process_start_time(static_cast<uint32_t>(getpid()));
    CHECK(start > 0);
    CHECK(!process_is_dead(static_cast<uint32_t>(getpid()), start));
  });
  child.join();
}

// pidfd_open answers ENOENT, or EINVAL before Linux 6.9. Both may be younger than a clock tick.
TEST(a_pid_that_a_thread_has_by_now_is_that_of_a_dead_process) {
  in_a_pid_namespace(Proc::kOwn, [] {
    const pid_t pid = fork();
    if (pid == 0) {
      for (;;) pause();
    }
    const uint64_t start = process_start_time(static_cast<uint32_t>(pid));
    CHECK(start > 0);
    CHECK(!process_is_dead(static_cast<uint32_t>(pid), start));
    kill(pid, SIGKILL);
    CHECK_EQ(waitpid(pid, nullptr, 0), pid);
    if (!choose_next_pid(pid)) return;
    run_threads({[&] {  // this thread has the pid, or the one that ThreadSanitizer starts before it
      const auto reused = static_cast<uint32_t>(pid);
      CHECK_EQ(process_of_thread(reused), own_pid());
      CHECK(process_is_dead(reused, start));
      CHECK(process_is_dead(reused, 0));
    }});
  });
}

TEST(a_process_without_a_descriptor_left_still_tells_the_dead_from_the_living) {
  Child ended([] {});
  const auto pid = static_cast<uint32_t>(ended.pid());
  ended.join();
  Child child([&] {
    const rlimit none{0, 0};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK(process_is_dead(pid, 1));
    CHECK(!process_is_dead(own_pid(), 1));  // its start time cannot be read either
  });
  child.join();
}

// There, /proc/2 is about another process. What a process reads of itself is right.
TEST(a_proc_of_another_pid_namespace_says_nothing_about_a_process) {
  in_a_pid_namespace(Proc::kOuter, [] {
    CHECK_EQ(own_pid(), 1u);
    Child other([] { pause(); });
    const auto pid = static_cast<uint32_t>(other.pid());
    CHECK_EQ(process_start_time(pid), 0u);
    CHECK_EQ(process_of_thread(pid), 0u);
    CHECK(!process_is_dead(pid, 1));
    const uint64_t start = process_start_time(own_pid());
    CHECK(start > 0);
    CHECK(!process_is_dead(own_pid(), start));
    other.send(SIGKILL);
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
    CHECK(process_is_dead(pid, 1));
  });
}

TEST(a_thread_belongs_to_its_process_and_is_gone_when_it_has_ended) {
  uint32_t thread = 0;
  run_threads({[&] {
    thread = own_thread();
    CHECK_EQ(process_of_thread(thread), own_pid());
    CHECK(!thread_is_gone(thread));
  }});
  until([&] { return thread_is_gone(thread); });  // joined a moment before the kernel has forgotten it
  CHECK_EQ(process_of_thread(thread), 0u);
}

}  // namespace shmreplay::test
