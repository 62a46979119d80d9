"""Cases from the field: public bug reports of replay buffers, each with the right value here.

The letters that the docstrings name are groups of such reports. Each group has a module that also lists those of its
cases which other tests cover; of one group all are covered elsewhere:

- H, dtypes and shapes. H1 (values come back in another dtype, Stable-Baselines3#484 and others):
  `test_every_dtype_comes_back_bit_by_bit`, `test_an_integer_that_no_float_holds_comes_back`. H2 (images stored as
  floats): `test_images_given_as_floats_are_refused`. H3 (`()` and `(1,)` are taken for each other, cpprb#96):
  `test_no_axis_and_an_axis_of_one_are_different_shapes`. H4 (the shape is that of the first write):
  `test_other_specs_under_a_name_are_refused_with_the_difference`. H5 (a batch larger than the buffer, ray#4649):
  `test_a_batch_may_be_larger_than_the_table_where_items_stay` and
  `test_a_sample_of_more_than_a_queue_holds_hands_out_what_there_was`.
"""

from tests.children import fork
from tests.system.conftest import client, daemon, make_daemon, run_script
from tests.tables import make_table, server

__all__ = ["client", "daemon", "fork", "make_daemon", "make_table", "run_script", "server"]
