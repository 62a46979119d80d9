// The functions that give _core its names: one for each class, defined in the class's file.
#pragma once

#include "python.h"

namespace shmreplay {

void bind_arena_setup(nb::module_& m);
void bind_arena(nb::module_& m);
void bind_checkpoint(nb::module_& m);
void bind_surely(nb::module_& m);
void bind_sample_options(nb::module_& m);
void bind_batch_layout(nb::module_& m);
void bind_encoded_rows(nb::module_& m);
void bind_table(nb::module_& m);
void bind_shard_batch(nb::module_& m);
void bind_view(nb::module_& m);
void bind_writer(nb::module_& m);
void bind_vector_writer(nb::module_& m);

}  // namespace shmreplay
