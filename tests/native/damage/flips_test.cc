// One byte of a live arena is flipped, anywhere but in the mutex itself, and everything is called on it.
//
// Each flip is a forked child's: it attaches before the flip or after it, with or without a dead holder's log to roll
// back, and performs every operation in an order of its own. Whatever they answer, nobody crashes, reads outside the
// mappings (which lie between guard pages), allocates without a bound or loops for ever. SHMREPLAY_FLIPS=<n> tries
// more; SHMREPLAY_SEED=<seed> SHMREPLAY_FLIP=<k> does one of them again.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "damage/flips_attack.h"

namespace shmreplay::test {
namespace {

constexpr uint64_t kGuardBytes = 16u << 20;
constexpr rlim_t kMemoryBytes = 1u << 30;  // address space a child may use: a length that was flipped must not become a
                                           // buffer
constexpr rlim_t kCpuSeconds = kSanitized ? 120 : 10;  // an endless loop is told by the time it burns, not by the clock
constexpr unsigned kChildSeconds = 150;                // for one that sleeps

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = getenv(variable);
  return text == nullptr ? otherwise : strtoull(text, nullptr, 10);
}

// ---- where a byte is flipped -------------------------------------------------------------------------------------

struct Flip {
  Region region;
  uint64_t offset;
  uint8_t mask;
  bool attached;  // the child is attached when it happens
  bool dead;      // a holder died before
  uint64_t seed;  // of the child's order of operations
};

Flip choose(const Arena& a, const std::vector<Region>& regions, uint64_t seed) {
  Random random(seed);
  const Region& r = regions[random.below(regions.size())];
  uint64_t at = 0;
  // Words in use, mostly.
  for (int tries = 0; tries < 4; ++tries) {
    at = r.begin + random.below(r.end - r.begin);
    if (*reinterpret_cast<const uint64_t*>((r.in_data ? a.data() : a.index()) + at / 8 * 8) != 0) break;
  }
  const bool whole = random.chance(0.5);
  const auto mask = static_cast<uint8_t>(whole ? 1 + random.below(255) : 1u << random.below(8));
  return {r, at, mask, random.chance(0.7), random.chance(0.25), random.word()};
}

// ---- what is called on it ----------------------------------------------------------------------------------------

// Room for both segments with nothing readable around it: a read beyond an end dies.
void make_guarded_room(uint64_t index_bytes, uint64_t data_bytes) {
  const uint64_t total = 3 * kGuardBytes + index_bytes + data_bytes;
  auto* room = static_cast<char*>(mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  CHECK(room != MAP_FAILED);
  // Mappings are made in the highest gap that they fit: gaps above the room are filled.
  for (const uint64_t bytes : {index_bytes, data_bytes}) {
    for (;;) {
      void* filler = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      CHECK(filler != MAP_FAILED);
      if (filler > room) continue;
      munmap(filler, bytes);
      break;
    }
  }
  munmap(room + kGuardBytes, index_bytes);
  munmap(room + 2 * kGuardBytes + index_bytes, data_bytes);
}

void flip_and_attack(Scene& scene, const Flip& flip) {
  alarm(kChildSeconds);
  const rlimit cpu{kCpuSeconds, kCpuSeconds + 1};
  CHECK_EQ(setrlimit(RLIMIT_CPU, &cpu), 0);
  progress() = {};
  const Arena& whole = *scene.world.daemon;
  const auto do_flip = [&] {
    *reinterpret_cast<uint8_t*>((flip.region.in_data ? whole.data() : whole.index()) + flip.offset) ^= flip.mask;
  };
  if (!flip.attached) do_flip();
  make_guarded_room(scene.world.daemon->index_bytes(), scene.world.daemon->data_bytes());
  if (!kSanitized) {
    const rlimit limit{kMemoryBytes, kMemoryBytes};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  std::unique_ptr<Arena> arena;
  try {
    arena = scene.world.segments.attach(scene.client->session_index(), scene.client->session_generation());
  } catch (const AttachError&) {
    _exit(0);
  }
  auto* attack = new Attack(scene, *arena);
  if (flip.attached) do_flip();
  attack->run(flip.seed);
  _exit(0);
}

std::string describe(const Flip& flip, uint64_t k) {
  return "flip " + shown(k) + ": " + flip.region.name + " + offset " + shown(flip.offset) + " ^ " +
         shown(int{flip.mask}) + (flip.attached ? ", attached before" : ", attached after") +
         (flip.dead ? ", a dead holder" : "") + ", in '" + progress().operation + "'";
}

}  // namespace

TEST(the_same_operations_raise_nothing_where_nothing_is_flipped) {
  Scene scene;
  for (uint64_t i = 0; i < 40; ++i) {
    scene.restore(i % 2 == 1);
    const Flip none{{"none", 0, 1}, 0, 0, true, i % 2 == 1, i};
    Child child([&] { flip_and_attack(scene, none); });
    const int status = child.wait();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (progress().raised > 0) fail(__FILE__, __LINE__, progress().said);
  }
}

TEST(a_flipped_byte_makes_an_error_or_a_wrong_answer_and_never_a_crash_or_a_hang) {
  Scene scene;
  const uint64_t base = seed(), n = number_from("SHMREPLAY_FLIPS", kSanitized ? 150 : 2000);
  const uint64_t only = number_from("SHMREPLAY_FLIP", UINT64_MAX);
  const std::vector<Region> regions = regions_of(*scene.world.daemon);
  uint64_t raised = 0, tried = 0, failures = 0;
  for (uint64_t k = only == UINT64_MAX ? 0 : only; k < n && failures < 10; ++k) {
    alarm(2 * kChildSeconds);  // of this flip, not of them all
    scene.restore(false);
    const Flip flip = choose(*scene.world.daemon, regions, base + k * 0x9e3779b97f4a7c15);
    scene.restore(flip.dead);
    Child child([&] { flip_and_attack(scene, flip); });
    const int status = child.wait();
    ++tried;
    raised += progress().raised > 0 ? 1 : 0;
    std::string failure;
    if (WIFSIGNALED(status)) failure = describe(flip, k) + ": killed by signal " + shown(WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0) failure = describe(flip, k) + ": ended with " + shown(WEXITSTATUS(status));
    if (!failure.empty()) {
      ++failures;
      printf("\n    %s", failure.c_str());
      fflush(stdout);  // whatever becomes of the rest
    }
    if (only != UINT64_MAX) break;
  }
  scene.restore(false);
  check_healthy(*scene.world.daemon);
  printf("%llu flips, %llu raised; ", static_cast<unsigned long long>(tried), static_cast<unsigned long long>(raised));
  CHECK_EQ(failures, 0u);
}

}  // namespace shmreplay::test
