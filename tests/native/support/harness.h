// A small test harness: tests with sentences for names, checks that show both sides, a watchdog.
//
//   TEST(a_full_table_evicts_its_oldest_item) {
//     CHECK_EQ(table.size(), 3u);
//   }
//
// A failed check ends its test. The program runs every test, or those whose name contains its argument. It fails if a
// test failed or none ran. Each test has a watchdog: a hang fails, and nothing else is timed. Random tests take their
// seed from seed(), which prints it; SHMREPLAY_SEED=<n> runs them with that seed again.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace shmreplay::test {

class CheckFailed : public std::runtime_error { using std::runtime_error::runtime_error; };

struct Registered { Registered(const char* name, void (*body)()); };

[[noreturn]] void fail(const char* file, int line, const std::string& what);

template <class T>
std::string shown(const T& value) {
  std::ostringstream out;
  out.precision(17);
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (requires { value.begin(); }) {
    out << '[';
    for (const auto& element : value) out << shown(element) << ' ';
    out << ']';
  } else {
    out << "(a value)";
  }
  return out.str();
}

template <class A, class B>
void check_equal(const A& have, const B& want, const char* expression, const char* file, int line) {
  if (have == want) return;
  fail(file, line, std::string(expression) + " is " + shown(have) + ", expected " + shown(want));
}

// For builds in which every instruction is instrumented: the watchdog waits twice as long, exhaustive loops are
// thinned.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

// SHMREPLAY_SEED, or a fresh seed. Prints it.
uint64_t seed();

// How often to repeat a search that finds more the longer it goes on: `many` times if SHMREPLAY_LONG is set (`make
// test-long`), else `few` times.
uint64_t rounds(uint64_t few, uint64_t many);

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed_) : state_(seed_) {}
  uint64_t word() noexcept;
  uint64_t below(uint64_t n) noexcept { return word() % n; }
  double uniform() noexcept { return static_cast<double>(word() >> 11) * 0x1.0p-53; }  // in [0, 1)
  bool chance(double p) noexcept { return uniform() < p; }

 private:
  uint64_t state_;
};

// The upper tail of the chi-square distribution: how likely it is that a fair draw deviates as much.
double chi_square_tail(double statistic, double degrees) noexcept;

}  // namespace shmreplay::test

#define TEST(name)                                                            \
  static void name();                                                         \
  static const ::shmreplay::test::Registered registered_##name(#name, &name); \
  static void name()

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) ::shmreplay::test::fail(__FILE__, __LINE__, "not true: " #condition); \
  } while (false)

#define CHECK_EQ(have, want) ::shmreplay::test::check_equal((have), (want), #have, __FILE__, __LINE__)

#define CHECK_NEAR(have, want, tolerance)                                                                          \
  do {                                                                                                             \
    const double have_ = (have), want_ = (want);                                                                   \
    if (!(have_ - want_ <= (tolerance) && want_ - have_ <= (tolerance))) {                                         \
      ::shmreplay::test::fail(                                                                                     \
          __FILE__, __LINE__,                                                                                      \
          #have " is " + ::shmreplay::test::shown(have_) + ", expected about " + ::shmreplay::test::shown(want_)); \
    }                                                                                                              \
  } while (false)

// The expression throws `type`, and its text contains `text`.
#define CHECK_THROWS(type, text, expression)                                                                  \
  do {                                                                                                        \
    bool thrown_ = false;                                                                                     \
    try {                                                                                                     \
      static_cast<void>(expression);                                                                          \
    } catch (const type& e) {                                                                                 \
      thrown_ = true;                                                                                         \
      if (std::string(e.what()).find(text) == std::string::npos) {                                            \
        ::shmreplay::test::fail(__FILE__, __LINE__, std::string(#expression " says: ") + e.what());           \
      }                                                                                                       \
    }                                                                                                         \
    if (!thrown_) ::shmreplay::test::fail(__FILE__, __LINE__, #expression " threw nothing, expected " #type); \
  } while (false)
