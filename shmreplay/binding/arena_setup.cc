// What is done before an arena is mapped, or without one: planning and formatting segments, reading their headers, huge
// pages, memory nodes, this boot and its limits, and looking whether processes are dead.
#include <system_error>

#include "arena/arena.h"
#include "arena/formatter.h"
#include "arena/huge_pages.h"
#include "arena/robust_lock.h"
#include "base/host_identity.h"
#include "base/limits.h"
#include "base/process.h"
#include "bindings.h"
#include "gil.h"
#include "sessions/sessions.h"
#include "write/row_packer.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

TableSpec table_spec(nb::dict d) {
  TableSpec t;
  t.name = nb::cast<std::string>(d["name"]);
  t.max_size = nb::cast<uint32_t>(d["max_size"]);
  t.sampler = nb::cast<uint32_t>(d["sampler"]);
  t.sampler_exponent = nb::cast<double>(d["sampler_exponent"]);
  t.remover = nb::cast<uint32_t>(d["remover"]);
  t.remover_exponent = nb::cast<double>(d["remover_exponent"]);
  t.max_times_sampled = nb::cast<uint32_t>(d["max_times_sampled"]);
  t.samples_per_insert = nb::cast<double>(d["samples_per_insert"]);
  t.min_size_to_sample = nb::cast<int64_t>(d["min_size_to_sample"]);
  t.min_diff = nb::cast<double>(d["min_diff"]);
  t.max_diff = nb::cast<double>(d["max_diff"]);
  t.count_deletes = nb::cast<bool>(d["count_deletes"]);
  t.on_full = nb::cast<uint32_t>(d["on_full"]);
  t.item_steps = nb::cast<uint32_t>(d["item_steps"]);
  t.shard = nb::cast<uint32_t>(d["shard"]);
  return t;
}

ArenaSpec arena_spec(nb::dict d) {
  ArenaSpec s;
  const nb::object columns = d["columns"], tables = d["tables"];
  for (nb::handle c : columns) {
    s.columns.push_back({nb::cast<uint32_t>(c[0]), nb::cast<uint32_t>(c[1]), nb::cast<uint32_t>(c[2])});
  }
  s.chunk_steps = nb::cast<uint32_t>(d["chunk_steps"]);
  s.num_chunks = nb::cast<uint32_t>(d["num_chunks"]);
  s.max_streams = nb::cast<uint32_t>(d["max_streams"]);
  s.max_sessions = nb::cast<uint32_t>(d["max_sessions"]);
  s.num_blocks = nb::cast<uint32_t>(d["num_blocks"]);
  s.block_bytes = nb::cast<uint32_t>(d["block_bytes"]);
  const auto specs = nb::cast<nb::bytes>(d["specs"]);
  s.specs.assign(specs.c_str(), specs.size());
  for (nb::handle t : tables) s.tables.push_back(table_spec(nb::cast<nb::dict>(t)));
  return s;
}

nb::dict plan(nb::dict native) {
  const ArenaSpec spec = arena_spec(native);
  const Plan p = plan_arena(spec);
  nb::dict d;
  d["index_bytes"] = p.index_bytes;
  d["data_bytes"] = p.data_bytes;
  d["chunk_bytes"] = p.geometry.chunk_bytes;
  d["heap_bytes"] = uint64_t{p.geometry.num_blocks} * p.geometry.block_bytes;
  d["item_index_bytes"] = (p.offsets.end - p.offsets.items) / p.geometry.total_items;
  return d;
}

// How many bytes these rows take when one stream packs them one after the other. `rows`: uint8 [n, row_bytes],
// contiguous.
uint64_t packed_bytes(nb::handle rows) {
  auto* array = reinterpret_cast<PyArrayObject*>(rows.ptr());
  if (!PyArray_Check(rows.ptr()) || PyArray_TYPE(array) != NPY_UINT8 || PyArray_NDIM(array) != 2 ||
      !PyArray_IS_C_CONTIGUOUS(array)) {
    throw nb::type_error("rows: expected a contiguous uint8 array of two axes");
  }
  const auto row_bytes = static_cast<size_t>(PyArray_DIM(array, 1));
  if (row_bytes == 0 || row_bytes >= 1u << 31) throw nb::value_error("rows: expected 1 to 2^31 - 1 bytes each");
  RowPacker packer(static_cast<uint32_t>(row_bytes));
  std::vector<char> bytes;
  uint64_t total = 0;
  for (npy_intp i = 0; i < PyArray_DIM(array, 0); ++i) {
    std::memcpy(packer.staged(), static_cast<const char*>(PyArray_DATA(array)) + static_cast<size_t>(i) * row_bytes,
                row_bytes);
    bytes.clear();
    packer.pack(static_cast<uint32_t>(i), bytes);
    total += bytes.size();
  }
  return total;
}

nb::dict header(int index_fd) {
  const HeaderReport h = inspect_header(index_fd);
  nb::dict d;
  d["magic_ok"] = h.magic_ok;
  d["ready"] = h.ready;
  d["failed"] = h.failed;
  d["layout_version"] = h.layout_version;
  d["layout_hash"] = h.layout_hash;
  d["index_bytes"] = h.index_bytes;
  d["data_bytes"] = h.data_bytes;
  d["pid_namespace"] = h.pid_namespace;
  d["boot_id"] = h.boot_id;
  d["instance"] = h.instance;
  d["name"] = h.name;
  d["specs"] = nb::bytes(h.specs.data(), h.specs.size());
  return d;
}

}  // namespace

void bind_arena_setup(nb::module_& m) {
  m.def("layout_hash", &layout_hash, "Hash of the segment's layout, the lock and the C library.");
  m.def("plan_arena", &plan, "native"_a, "Sizes of an arena, in bytes.");
  m.def(
      "format_arena",
      [](int index_fd, int data_fd, nb::dict native, const std::string& instance, const std::string& name,
         bool published) {
        const ArenaSpec spec = arena_spec(native);
        const GilRelease release;
        Formatter(index_fd, data_fd, spec).run(instance, name, published);
      },
      "index_fd"_a, "data_fd"_a, "native"_a, "instance"_a, "name"_a, "published"_a = true,
      "Lays out an empty arena in two segments of the planned sizes.");
  m.def("packed_bytes", &packed_bytes, "rows"_a,
        "Stored bytes of rows of a packed column, uint8 [n, row_bytes], one after the other.");
  m.def("inspect_header", &header, "index_fd"_a,
        "What the header of an index segment says; OSError if it cannot be read, none for a damaged one.");
  m.def("take_huge_pages", &take_huge_pages, nb::call_guard<GilRelease>(), "fd"_a, "offset"_a, "num_bytes"_a,
        "Has the empty part of a file allocated as huge pages. 0, or the errno with which the kernel stopped.");
  m.def("huge_bytes_of", &huge_bytes_of, nb::call_guard<GilRelease>(), "fd"_a, "num_bytes"_a,
        "How much of a file is in huge pages now.");
  m.def(
      "num_memory_nodes", [] { return memory_nodes().count; },
      "Those that this process may use; 0 where there are none to choose.");
  m.def(
      "interleave", [](int fd, uint64_t bytes) { return interleave(fd, bytes, memory_nodes()); }, "fd"_a, "num_bytes"_a,
      "Spreads the pages that a file is given from now on over the memory nodes. 0, or errno.");
  m.def("prove_robust_lock", &prove_robust_lock, nb::call_guard<GilRelease>(),
        "Forks a child that dies inside a lock; RuntimeError where its death is not reported.");
  m.def("process_is_dead", &process_is_dead, "pid"_a, "start_time"_a,
        "Whether the kernel says that this process has ended.");
  m.def("boot_id", &boot_id, "The kernel's name for the time since the last boot; OSError if it cannot be read.");
  m.def("namespace_inode", &namespace_inode, "which"_a,
        "The inode of this process' namespace, 'pid' or 'time'; 0 if the kernel has none; OSError if it is hidden.");
  m.def("limit_behind", &limit_behind, "error"_a,
        "Names the limit behind an errno, its value and how to raise it; '' if there is none.");
  m.def("process_start_time", &process_start_time, "pid"_a, "Clock ticks since boot; 0 if unreadable.");
}

}  // namespace shmreplay
