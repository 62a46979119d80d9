"""The driver: what a process without a usable GPU is told, what errors of calls say, and which processes may call."""

import pickle
import subprocess
import sys
import threading

import pytest

from shmreplay.clients.cuda import driver as driver_module
from shmreplay.clients.cuda.device import Attribute, Device, open_device
from shmreplay.clients.cuda.driver import Driver
from shmreplay.clients.cuda.errors import CudaError, CudaUnavailable, Result
from shmreplay.clients.cuda.event import Event
from shmreplay.errors import ShmReplayError
from tests.support.children import Fork
from tests.support.fake_cuda import FakeCuda
from tests.support.tables import TableMaker, numbers, step


def why_not() -> str:
    """What a process is told that cannot use CUDA."""
    with pytest.raises(CudaUnavailable) as caught:
        Driver.open()
    return caught.value.reason


# --- without a GPU ---------------------------------------------------------------------------------------------------


def test_without_a_driver_it_says_which_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "LIBRARY", "libcuda-that-nobody-has.so.1")
    assert why_not().startswith("no NVIDIA driver can be loaded (libcuda-that-nobody-has.so.1: ")


def test_without_a_gpu_it_says_where_to_look(cuda: FakeCuda) -> None:
    cuda.reset(is_there=False)
    assert why_not() == "the NVIDIA driver shows no GPU; see CUDA_VISIBLE_DEVICES, and --gpus of containers"
    cuda.reset()
    cuda.set_devices(0)
    assert why_not().startswith("the NVIDIA driver shows no GPU;")


def test_a_driver_that_does_not_start_is_quoted(cuda: FakeCuda) -> None:
    cuda.set_init_result(Result.NOT_SUPPORTED)
    assert why_not() == "the NVIDIA driver does not start: cuInit failed with CUDA_ERROR_NOT_SUPPORTED (801)"


def test_a_driver_that_lacks_a_function_is_too_old(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(driver_module._PARAMETERS, "cuOfTheFuture", ())
    assert why_not().startswith("the NVIDIA driver is too old: ")
    assert "cuOfTheFuture" in why_not()


def test_a_gpu_that_is_not_there_is_no_handle(cuda: FakeCuda) -> None:
    cuda.set_devices(2)
    driver = Driver.open()
    for ordinal in (-1, 2):
        with pytest.raises(CudaUnavailable, match=f"there is no GPU {ordinal}; the driver shows 2, counted from 0$"):
            open_device(ordinal, driver)
    cuda.refuse("cuDevicePrimaryCtxRetain", Result.NOT_SUPPORTED)
    with pytest.raises(CudaUnavailable, match="GPU 1 gives no context: cuDevicePrimaryCtxRetain failed with CUDA_"):
        open_device(1, driver)


# --- what it tells ---------------------------------------------------------------------------------------------------


def test_it_tells_versions_names_and_attributes(cuda: FakeCuda) -> None:
    cuda.set_devices(2)
    cuda.set_attribute(Attribute.CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0)
    driver = Driver.open()
    assert driver.version == "13.2"
    with open_device(1, driver) as device:
        assert (device.ordinal, device.name, repr(device)) == (1, "fake GPU 1", "<GPU 1>")
        assert device.has(Attribute.HOST_REGISTER_SUPPORTED)
        assert not device.has(Attribute.CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)
        cuda.refuse("cuDeviceGetAttribute", Result.INVALID_VALUE, nth=1)
        assert not device.has(Attribute.HOST_REGISTER_SUPPORTED), "an old driver does not know it"
        cuda.refuse("cuDeviceGetAttribute", Result.NOT_SUPPORTED, nth=1)
        with pytest.raises(CudaError, match=r"^cuDeviceGetAttribute failed with CUDA_ERROR_NOT_SUPPORTED"):
            device.has(Attribute.HOST_REGISTER_SUPPORTED)


def test_an_error_says_call_code_and_the_drivers_word_for_it(cuda: FakeCuda, device: Device) -> None:
    cuda.refuse("cuMemAlloc_v2", 2, nth=1)
    with pytest.raises(CudaError) as caught:
        device.alloc(100)
    error = caught.value
    assert (error.call, error.code, error.name) == ("cuMemAlloc", 2, "CUDA_ERROR_OUT_OF_MEMORY")
    assert str(error) == "cuMemAlloc failed with CUDA_ERROR_OUT_OF_MEMORY (2)"
    assert isinstance(error, ShmReplayError)
    cuda.refuse("cuMemAlloc_v2", 12345, nth=1)
    with pytest.raises(CudaError, match=r"^cuMemAlloc failed with an unknown error \(12345\)$"):
        device.alloc(100)


@pytest.mark.parametrize("error", [CudaError("cuInit", 3, "CUDA_ERROR_X"), CudaUnavailable("no GPU")])
def test_errors_come_out_of_other_processes_whole(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_an_error_is_its_callers_alone_and_the_next_call_goes_on(cuda: FakeCuda, device: Device) -> None:
    cuda.refuse("cuMemHostRegister_v2", Result.NOT_SUPPORTED, nth=1)
    with pytest.raises(CudaError):
        device.register(4096, 4096)
    device.free(device.alloc(100))


# --- who may call ----------------------------------------------------------------------------------------------------


def test_every_thread_may_call_and_keeps_the_context_that_it_had(device: Device) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                device.free(device.alloc(10))
        except CudaError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_refused_call_leaves_no_context_behind(cuda: FakeCuda, device: Device) -> None:
    cuda.refuse("cuMemAlloc_v2", 2, nth=1)
    with pytest.raises(CudaError):
        device.alloc(100)
    assert [name for name, _ in cuda.log()][-3:] == ["cuCtxPushCurrent_v2", "cuMemAlloc_v2", "cuCtxPopCurrent_v2"]


def test_a_closed_handle_says_so_and_another_one_goes_on(cuda: FakeCuda) -> None:
    first = open_device()
    second = first.again()
    first.close()
    first.close()
    with pytest.raises(CudaUnavailable, match="this handle of GPU 0 is closed; make another one"):
        first.alloc(1)
    assert repr(first) == "<GPU 0 closed>"
    second.free(second.alloc(1))
    second.close()
    assert cuda.left == {}


def test_a_thousand_handles_leave_nothing(cuda: FakeCuda) -> None:
    driver = Driver.open()
    for _ in range(1000):
        with open_device(0, driver) as device:
            device.stream_destroy(device.stream_create())
    assert cuda.left == {}


def test_a_forked_child_is_told_to_be_spawned_and_leaves_the_parents_alone(
    cuda: FakeCuda, device: Device, fork: Fork
) -> None:
    event = Event(device)

    def work(pipe: object) -> list[str]:
        reasons = [why_not()]
        with pytest.raises(CudaUnavailable) as caught:
            device.alloc(1)
        event.destroy()
        device.close()
        return [*reasons, caught.value.reason]

    first, second = fork(work).result()
    assert first.startswith("this process was forked from one that uses CUDA, which does not outlive a fork; start it ")
    assert second == "the driver was opened before this process was forked; open it anew in a spawned one"
    assert event.is_done()
    event.destroy()


# --- nothing before it is asked for ----------------------------------------------------------------------------------


def test_importing_shmreplay_loads_nothing_of_it() -> None:
    code = "import sys, shmreplay.clients.client; print([m for m in sys.modules if 'cuda' in m or m == 'torch'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_attaching_and_sampling_make_no_call_of_the_driver(cuda: FakeCuda, make_table: TableMaker, fork: Fork) -> None:
    table = make_table(10)
    table.insert(step(3))
    assert numbers(table.sample(2)).tolist() == [3, 3]
    assert cuda.log() == []
    # so that a child which is forked now may use the GPU
    assert fork(lambda pipe: Driver.open().num_devices).result() == 1
