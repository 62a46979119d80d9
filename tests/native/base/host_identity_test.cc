#include "base/host_identity.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// Runs `body` where an empty directory lies over `hidden`. Only root may do that.
void where_is_hidden(const char* hidden, const std::function<void()>& body) {
  Child child([&] {
    const bool is_hidden = unshare(CLONE_NEWNS) == 0 &&
                           mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                           mount("tmpfs", hidden, "tmpfs", 0, "size=4k") == 0;
    if (!is_hidden) {
      printf("    skipped: this user may not mount: %s\n", strerror(errno));
      return;
    }
    body();
  });
  child.join();
}

}  // namespace

TEST(this_boot_and_these_namespaces_have_names) {
  CHECK_EQ(boot_id().size(), 36u);
  CHECK_EQ(boot_id(), boot_id());
  struct stat st;
  CHECK_EQ(stat("/proc/self/ns/pid", &st), 0);
  CHECK_EQ(namespace_inode("pid"), static_cast<uint64_t>(st.st_ino));
}

TEST(a_boot_that_cannot_be_read_is_an_error_with_the_file_the_reason_and_what_to_do) {
  where_is_hidden("/proc/sys", [] {
    CHECK_THROWS(std::system_error, "/proc/sys/kernel/random/boot_id cannot be read", boot_id());
    CHECK_THROWS(std::system_error, "mount all of /proc here", boot_id());
    CHECK_THROWS(std::system_error, strerror(ENOENT), boot_id());
    CHECK(namespace_inode("pid") != 0);
  });
  if (kSanitized) return;  // a sanitizer looks at memory by a pipe
  Child child([] {
    const rlimit none{0, 0};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    CHECK_THROWS(std::system_error, strerror(EMFILE), boot_id());
    CHECK(namespace_inode("pid") != 0);  // that takes no descriptor
  });
  child.join();
}

// Two processes that see no /proc may be in different namespaces: 0 would make them neighbours.
TEST(a_namespace_that_is_hidden_is_an_error_and_not_a_missing_one) {
  where_is_hidden("/proc", [] {
    CHECK_THROWS(std::system_error, "/proc/self/ns/pid cannot be read", namespace_inode("pid"));
    CHECK_THROWS(std::system_error, "/proc/self/ns/time cannot be read", namespace_inode("time"));
  });
}

}  // namespace shmreplay::test
