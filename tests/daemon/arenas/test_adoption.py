"""What the next daemon makes of the arenas and sessions that a killed one left."""

from tests.support.daemons import Run, StartDaemon
from tests.support.namespaces import IN_OWN_PIDS, NEXT_PID, needs_own_pids

# A client ends while no daemon runs, and a thread gets its pid. Then the next daemon starts.
A_THREAD_HAS_A_CLIENTS_PID = f"""
import os, signal, subprocess, sys, threading
import numpy as np
import shmreplay as sr
{NEXT_PID}
socket, instance = sys.argv[1:]

def start():
    ready, ready_for_child = os.pipe()
    command = [sys.executable, "-m", "shmreplay.daemon", "--socket", socket, "--instance", instance]
    command += ["--ready-fd", str(ready_for_child)]
    daemon = subprocess.Popen(command, pass_fds=(ready_for_child,))
    os.close(ready_for_child)
    said = os.read(ready, 16)
    os.close(ready)
    assert said == b"ready\\n", f"the daemon ended with code {{daemon.wait()}}"
    return daemon

daemon = start()
client = sr.connect(socket)
client.create_tables([sr.Table("replay", {{"x": np.zeros(3, np.float32)}}, max_size=1000)])
attach = "import sys, shmreplay as sr; t = sr.connect(sys.argv[1]).table('replay'); print(len(t), flush=True); input()"
actor = subprocess.Popen([sys.executable, "-c", attach, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert actor.stdout.readline() == b"0\\n"
daemon.kill()
daemon.wait()
actor.kill()
actor.wait()
done = threading.Event()
next_is(actor.pid)
thread = threading.Thread(target=done.wait)
thread.start()
try:
    assert thread.native_id == actor.pid
    daemon = start()
    while client.stats()["arenas"]["replay"]["sessions"]:
        os.sched_yield()
    print(list(client.tables()))
    daemon.terminate()
    assert daemon.wait() == 0
finally:
    done.set()
"""


@needs_own_pids
def test_a_thread_with_the_pid_of_a_dead_client_keeps_no_daemon_from_its_arenas(
    make_daemon: StartDaemon, run_script: Run
) -> None:
    """The daemon takes back what the client held."""
    place = make_daemon()
    script = run_script(A_THREAD_HAS_A_CLIENTS_PID, place.socket, place.instance, wrapper=IN_OWN_PIDS)
    code, out, err = script.finish()
    assert (code, out) == (0, "['replay']\n"), err
    assert "taken over with 0 live sessions; processes that have ended meanwhile" in err
