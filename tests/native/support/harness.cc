#include "support/harness.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <unistd.h>
#include <vector>

namespace shmreplay::test {
namespace {

constexpr unsigned kWatchdogSeconds = kSanitized ? 600 : 300;  // for a hang; a busy machine may be ten times as slow

struct Test {
  const char* name;
  void (*body)();
};

std::vector<Test>& tests() {
  static std::vector<Test> all;  // made by the first TEST, whichever file is initialised first
  return all;
}

const char* running = "";

void bark(int) {
  const char text[] = "\nwatchdog: this test hangs: ";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  (void)!write(STDERR_FILENO, running, strlen(running));
  (void)!write(STDERR_FILENO, "\n", 1);
  _exit(124);
}

bool run(const Test& test) {
  running = test.name;
  printf("  %s ", test.name);
  fflush(stdout);
  const auto start = std::chrono::steady_clock::now();
  alarm(kWatchdogSeconds);
  bool ok = true;
  try {
    test.body();
  } catch (const std::exception& e) {
    ok = false;
    printf("\n    FAILED %s\n", e.what());
  }
  alarm(0);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  if (ok) printf("ok (%lld ms)\n", static_cast<long long>(took.count()));
  fflush(stdout);
  return ok;
}

}  // namespace

Registered::Registered(const char* name, void (*body)()) { tests().push_back({name, body}); }

void fail(const char* file, int line, const std::string& what) {
  const char* base = strrchr(file, '/');
  throw CheckFailed(std::string(base == nullptr ? file : base + 1) + ":" + std::to_string(line) + ": " + what);
}

uint64_t seed() {
  const char* given = getenv("SHMREPLAY_SEED");
  const uint64_t s = given != nullptr ? strtoull(given, nullptr, 10) : std::random_device{}();
  printf("[seed %llu] ", static_cast<unsigned long long>(s));
  fflush(stdout);
  return s;
}

uint64_t rounds(uint64_t few, uint64_t many) { return getenv("SHMREPLAY_LONG") != nullptr ? many : few; }

uint64_t Random::word() noexcept {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Wilson and Hilferty: the cube root of chi-square / degrees is nearly normal.
double chi_square_tail(double statistic, double degrees) noexcept {
  const double v = 2.0 / (9.0 * degrees);
  const double z = (std::cbrt(statistic / degrees) - (1.0 - v)) / std::sqrt(v);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

}  // namespace shmreplay::test

int main(int argc, char** argv) {
  using namespace shmreplay::test;
  signal(SIGALRM, bark);
  int ran = 0, failed = 0;
  for (const Test& test : tests()) {
    if (argc > 1 && strstr(test.name, argv[1]) == nullptr) continue;
    ++ran;
    failed += run(test) ? 0 : 1;
  }
  printf("%d tests, %d failed\n", ran, failed);
  return ran > 0 && failed == 0 ? 0 : 1;
}
