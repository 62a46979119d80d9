"""Cases from the field: public bug reports of replay buffers, each with the right value here.

The letters that the docstrings name are groups of such reports. Each group has a module that also lists those of its
cases which other tests cover; of these all are covered elsewhere:
- H, dtypes and shapes. H1 (values come back in another dtype, Stable-Baselines3#484 and others):
  `test_every_dtype_comes_back_bit_by_bit`, `test_an_integer_that_no_float_holds_comes_back`. H2 (images stored as
  floats): `test_images_given_as_floats_are_refused`. H3 (`()` and `(1,)` are taken for each other, cpprb#96):
  `test_no_axis_and_an_axis_of_one_are_different_shapes`. H4 (the shape is that of the first write):
  `test_other_specs_under_a_name_are_refused_with_the_difference`. H5 (a batch larger than the buffer, ray#4649):
  `test_a_batch_may_be_larger_than_the_table_where_items_stay` and
  `test_a_sample_of_more_than_a_queue_holds_hands_out_what_there_was`.
- N6 and N7, CUDA and forks: `test_importing_shmreplay_loads_nothing_of_it`,
  `test_attaching_and_sampling_make_no_call_of_the_driver`;
  `test_steps_may_be_tensors_of_the_cpu_and_others_are_refused_with_their_device` (pytorch#80733).
- O, batches on a GPU. O1 (pinning copies and loses sharing, pytorch#32167):
  `test_rows_that_actors_write_after_it_was_locked_are_copied_from_the_segment_itself`. O2 (registrations leak or
  overlap): `test_a_thousand_holds_of_new_segments_leave_nothing`, `test_many_samplers_leave_nothing_behind`. O3 (a
  failure shows up elsewhere): `test_an_error_is_its_callers_alone_and_the_next_call_goes_on`. O4 (large regions):
  `test_a_copy_within_a_chunk_is_within_a_piece`. O6 (pinning blocks other processes):
  `test_the_driver_is_left_alone_between_pieces_for_as_long_as_one_took`. O7 (registration is forbidden):
  `test_a_segment_that_is_refused_leaves_staging_which_says_why`. O8 and A5 (rows are overwritten under a copy,
  pytorch/tutorials#3261): `test_rows_stay_leased_until_the_gpu_has_read_them`,
  `test_no_batch_is_torn_while_actors_write_and_copies_lag`. O5, a learner dies while it has memory pinned, needs a GPU.
- Q, how it is used. Q2 (batches of one size only, pytorch/rl#994):
  `test_batch_sizes_have_samplers_of_their_own_and_few_are_kept`. Q8 (workers of a DataLoader, pytorch/rl#4387):
  `test_a_loader_gets_whole_batches_from_as_many_workers_as_it_wants`.
"""
