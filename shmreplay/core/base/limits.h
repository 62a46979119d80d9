// Which limit the kernel meant when it refused something, and how to raise it.
#pragma once

#include <string>
#include <system_error>

namespace shmreplay {

// Names the limit behind an errno, with its present value, the process that has it, and what to do; "" if none is.
//
// EMFILE, ENFILE: open files. EFBIG: the size of a file. ENOMEM: the address space, or mappings and committed memory.
std::string limit_behind(int error);

// What the kernel refused, with the limit behind it. Python gets it as an OSError.
std::system_error refused(int error, const std::string& what);

// Whether this process' address space has a limit (ulimit -v).
bool address_space_is_limited() noexcept;

}  // namespace shmreplay
