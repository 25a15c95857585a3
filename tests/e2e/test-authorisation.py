#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Who may do what: the table of gpuprobed(8), AUTHORISATION, cell by cell, against the system's daemon of root in a mount namespace with a /run and a group
gpuprobe of its own. Each caller is a process with the ids of a user. The table here, that of the man page, and the methods of the interface must be the same.
"""

import base64
import ctypes
import os
import pickle
import re
import select
import shutil
import subprocess
import sys
import tempfile

from harness import BUILD, COUNTER, CTL, GPUPROBED, SHIM, SIM, SOURCE, VEC_ADD, Daemon, Failed, check, equal, main, need, wait_until
from varlink import Connection, VarlinkError
from wire import Shim

SKIP = 77
GROUP, MEMBER, OWNER, OTHER = 64001, 64002, 64003, 64004
DIRECTORY = "/run/gpuprobe"
PR_SET_DUMPABLE = 4
SETTINGS = "deadline-ms = 60000\n"
COLUMNS = ("root", "group", "owner, user-attach=yes", "owner, user-attach=no", "other users")


def example(name):
    return os.path.join(BUILD, "docs", name + ".bpf.o")


def obj(name):
    return os.path.join(BUILD, "tests/e2e/objects", name + ".bpf.o")


need(GPUPROBED, COUNTER, VEC_ADD, SHIM, example("memory_histogram"), example("launch_latency"), obj("rings"), obj("log"))
with open(f"{SOURCE}/tests/targets/vec_add.ptx", "rb") as ptx_file:
    PTX = ptx_file.read()
OBJECTS = {}
for path in COUNTER, example("memory_histogram"), example("launch_latency"), obj("rings"), obj("log"):
    with open(path, "rb") as object_file:
        OBJECTS[os.path.basename(path).removesuffix(".bpf.o")] = base64.b64encode(object_file.read()).decode()


# ---- the daemon, and users ----


class System(Daemon):
    """The system's daemon, with a file."""

    def __init__(self, text, *options):
        self.file = tempfile.NamedTemporaryFile(mode="w", prefix="gpuprobed-", suffix=".conf", dir="/run")
        self.cache = tempfile.TemporaryDirectory(prefix="gpuprobed-cache-", dir="/run")
        os.fchmod(self.file.fileno(), 0o644)
        self.write(text)
        super().__init__(start=False)
        self.directory = DIRECTORY
        self.process = subprocess.Popen(
            [GPUPROBED, f"--config={self.file.name}", f"--cache-dir={self.cache.name}", *options], stderr=self.log, env={**os.environ, **self.tools()}
        )
        wait_until(lambda: self.listens() or self.process.poll() is not None, "the daemon listens")
        check(self.process.poll() is None, "gpuprobed ended:", self.text())

    def write(self, text):
        self.file.seek(0)
        self.file.truncate()
        self.file.write(text)
        self.file.flush()

    def reload(self, text):
        at = len(self.text())
        self.write(text)
        self.process.send_signal(1)
        wait_until(lambda: "reload: done" in self.text()[at:], "reloaded")

    def stop(self):
        self.process.terminate()
        equal(self.process.wait(timeout=15), 0, self.text())


class User:
    """A process of a user, which does what it is told."""

    def __init__(self, uid, groups=(), dumpable=True):
        self.uid = uid
        there, self.calls = os.pipe()
        self.answers, here = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.calls)
            os.close(self.answers)
            try:
                self.serve(os.fdopen(there, "rb"), os.fdopen(here, "wb"), groups, dumpable)
            finally:
                os._exit(0)
        os.close(there)
        os.close(here)
        self.calls, self.answers = os.fdopen(self.calls, "wb"), os.fdopen(self.answers, "rb")

    def serve(self, calls, answers, groups, dumpable):
        os.setgroups(groups)
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        if dumpable:  # what has given up other rights is not
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        self.shim = None
        while True:
            name, parameters = pickle.load(calls)
            try:
                answer = getattr(self, "do_" + name)(**parameters)
            except VarlinkError as error:
                answer = (error.error, error.parameters)
            except Exception as error:  # pylint: disable=broad-except
                answer = ("exception", {"what": repr(error)})
            pickle.dump(answer, answers)
            answers.flush()

    def do_call(self, method, **parameters):
        """One reply: (None, it), or (error, its parameters)."""
        bus = Connection(DIRECTORY)
        try:
            bus.send(method, more=method == "Trace", **parameters)
            return None, bus.receive()[0]
        finally:
            bus.close()

    def do_attach_at_once(self, n):
        """Of so many calls the first answer."""
        held = [Connection(DIRECTORY) for _ in range(n)]
        for bus in held:
            bus.send("Attach", object=OBJECTS["counter"])
        there = select.select([bus.socket for bus in held], [], [], 60)[0]
        return None, next(bus for bus in held if bus.socket in there).receive()[0]

    def do_load(self):
        """Loads a module as a CUDA process does: whether it got another image, and why."""
        self.shim = Shim(DIRECTORY, timeout=60)  # closes the last one
        new, _, reason, _ = self.shim.image(PTX)
        return None, {"made": new is not None, "reason": reason}

    def ask(self, what, **parameters):
        pickle.dump((what, parameters), self.calls)
        self.calls.flush()
        error, reply = pickle.load(self.answers)
        if error == "exception":
            raise Failed(f"uid {self.uid}: {what} {str(parameters)[:200]}: {reply['what']}")
        return error, reply

    def call(self, method, **parameters):
        return self.ask("call", method=method, **parameters)

    def get(self, method, **parameters):
        error, reply = self.call(method, **parameters)
        if error:
            raise Failed(f"uid {self.uid}: {method}: {error} {reply}")
        return reply

    def end(self):
        self.calls.close()
        os.waitpid(self.pid, 0)
        self.answers.close()


# ---- the table ----


class World:
    """What belongs to the owner: attachments, a process that has their probes, and what came of it."""

    def __init__(self, owner, application):
        self.owner, self.application = owner, application
        self.file = shutil.copyfile(VEC_ADD, f"{DIRECTORY}/file")
        os.chown(self.file, OWNER, OWNER)
        attached = {name: owner.get("Attach", object=OBJECTS[name]) for name in ("counter", "memory_histogram", "rings", "log")}
        self.ids = {name: reply["attachments"][0] for name, reply in attached.items()}
        self.counter = str(attached["counter"]["maps"][0]["id"])
        owner.get("ExportMap", map=self.counter, name="gpuprobe_map_test_counter")
        made = application.ask("load")[1]
        check(made["made"], made)


def allowed(answer):
    """Whether a caller got what he asked for."""
    return answer[0] not in ("PermissionDenied", "NotFound")


def attach(world, user, name, **parameters):
    error, reply = user.call("Attach", object=OBJECTS[name], **parameters)
    if not error:
        for attachment in reply["attachments"]:
            user.get("Detach", id=attachment["id"])
    return allowed((error, reply))


def attach_to_all(world, user):
    """Those of somebody else; what no filter means is in test_own_processes()."""
    return attach(world, user, "counter", filter={"uid": OTHER if user.uid != OTHER else OWNER})


def attach_to_owner(world, user):
    return attach(world, user, "counter", filter={"uid": OWNER})


def attach_on_host(world, user):
    return attach(world, user, "launch_latency")


def detach(world, user):
    attached = USERS["root"].get("List")["attachments"]
    spare = next(a for a in attached if a["owner"] == OWNER and a["program"] == "cuda__counter" and a["id"] != world.ids["counter"]["id"])
    return allowed(user.call("Detach", id=spare["id"]))


def lists(method, key, means):
    def cell(world, user):
        return any(means(world, item) for item in user.get(method)[key])

    return cell


def lists_outcomes(world, user):
    return any(o["pid"] == world.application.pid for o in user.get("Why")["outcomes"])


def lists_kernels(world, user):
    return bool(user.get("ListKernels", pid=world.application.pid)["kernels"])


def simply(method, **parameters):
    return lambda world, user: allowed(user.call(method, **parameters))


def read_log(world, user):
    return allowed(user.call("ReadLog", object=world.ids["log"]["object"]))


def ping_workers(world, user):
    checks = user.get("Examine")["checks"]
    return not any(c["state"] == "skipped" and "only root and members" in c["found"] + c["todo"] for c in checks)


def trace(**parameters):
    return lambda world, user: allowed(user.call("Trace", duration=1, **{"sources": ["shim"], **parameters}))


def trace_process(world, user):
    return allowed(user.call("Trace", pids=[world.application.pid], sources=["shim"], duration=1))


def trace_all(world, user):
    return trace(filter={"uid": OTHER if user.uid != OTHER else OWNER})(world, user)


def trace_probe(world, user):
    reply = user.get("Trace", probes=["k:nvidia:nvidia_open(a=arg1:u64)"], sources=["kernel"], duration=1)
    return not any("callers who may not attach" in line for line in reply["missing"] or [])


def trace_file(world, user):
    reply = user.get("Trace", probes=[f"u:{world.file}:main"], sources=["kernel"], hooks=["!all"], duration=1)
    return not any("callers who may not attach" in line for line in reply["missing"] or [])


def has_probes():
    return not any(
        "hooks: " in line for line in USERS["root"].get("Trace", probes=["u:/bin/sh:main"], sources=["kernel"], hooks=["!all"], duration=1)["missing"] or []
    )


def export(world, user):
    got = [
        allowed(user.call("ExportMap", map="accesses", name="gpuprobe_map_test_accesses")),
        any(e["name"] == "gpuprobe_map_test_counter" for e in user.get("ListExports")["exports"]),
        allowed(user.call("UnexportMap", map="accesses")),
    ]
    return both(*got)


def export_any_name(world, user):
    return both(allowed(user.call("ExportMap", map="accesses", name="node_accesses")), allowed(user.call("UnexportMap", map="accesses")))


def metrics(world, user):
    text = user.get("Metrics")["text"]
    check("gpuprobe" in text, text)
    return "gpuprobe_map_test_counter" in text


def clear_cache(world, user):
    return allowed(user.call("ClearCache"))


def counter_name(world, item):
    return item["id"] == world.ids["counter"]["id"]


# what; the methods that it tries; root, group, owner with user-attach=yes, with user-attach=no, other users
TABLE = (
    ("attach to processes of all users", ("Attach",), attach_to_all, "yes yes no no no"),
    ("attach to processes of the owner", ("Attach",), attach_to_owner, "yes yes yes no no"),
    ("attach programs that run on the host", ("Attach",), attach_on_host, "yes no no no no"),
    ("detach what the owner has attached", ("Detach",), detach, "yes no yes yes no"),
    (
        "list it, and its maps",
        ("List", "ListMaps"),
        lambda w, u: both(lists("List", "attachments", counter_name)(w, u), lists("ListMaps", "maps", lambda _, m: m["name"] == "counter")(w, u)),
        "yes no yes yes no",
    ),
    (
        "read its maps, rings and logs",
        ("DumpMap", "ShowMap", "ReadRing", "ReadLog"),
        lambda w, u: both(
            simply("DumpMap", map="accesses")(w, u), simply("ShowMap", map="accesses")(w, u), simply("ReadRing", map="standard")(w, u), read_log(w, u)
        ),
        "yes no yes yes no",
    ),
    (
        "change its maps",
        ("UpdateMap", "DeleteMap"),
        lambda w, u: both(simply("UpdateMap", map="accesses", key="AA==", value="AA==")(w, u), simply("DeleteMap", map="accesses", key="AA==")(w, u)),
        "yes no yes yes no",
    ),
    (
        "show its programs, and instructions of kernels",
        ("ShowProgram", "ShowKernel"),
        lambda w, u: both(simply("ShowProgram", program=str(w.ids["rings"]["id"]))(w, u), simply("ShowKernel", kernel="vectorAdd")(w, u)),
        "yes no yes yes no",
    ),
    (
        "what was probed in processes of the owner, and why not",
        ("Why", "ListKernels"),
        lambda w, u: both(lists_outcomes(w, u), lists_kernels(w, u)),
        "yes no yes yes no",
    ),
    ("export its maps as metrics, list exports, and end them", ("ExportMap", "ListExports", "UnexportMap"), export, "yes no yes yes no"),
    ("the same under any name of a metric", ("ExportMap",), export_any_name, "yes no no no no"),
    ("metrics of its exported maps", ("Metrics",), metrics, "yes no yes yes no"),
    ("list what the cache has of the owner's processes", ("ListCache",), lists("ListCache", "entries", lambda _, e: e["uid"] == OWNER), "yes no yes yes no"),
    ("clear the cache", ("ClearCache",), clear_cache, "yes yes no no no"),
    ("trace processes of all users", ("Trace",), trace_all, "yes yes no no no"),
    ("trace processes of the owner", ("Trace",), lambda w, u: both(trace_process(w, u), trace(filter={"uid": OWNER})(w, u)), "yes yes yes yes no"),
    ("trace with probes of functions of the owner's files", ("Trace",), trace_file, "yes yes yes no no"),
    ("trace with probes of one's own in the kernel", ("Trace",), trace_probe, "yes yes no no no"),
    ("have workers asked for a sign of life", ("Examine",), ping_workers, "yes yes no no no"),
    (
        "state and metrics of the daemon and its cache, passes, hooks",
        ("Status", "Metrics", "Examine", "CacheStatus", "ListPasses", "ListHooks"),
        lambda w, u: both(*(simply(m)(w, u) for m in ("Status", "Metrics", "Examine", "CacheStatus", "ListPasses", "ListHooks"))),
        "yes yes yes yes yes",
    ),
)


def both(*answers):
    """Things of one row: all are allowed, or none is."""
    equal(len(set(answers)), 1, f"not the same for all of a row: {answers}")
    return answers[0]


# ---- tests ----


def test_every_method():
    with open(f"{SOURCE}/proto/io.gpuprobe.control.varlink") as file:
        methods = set(re.findall(r"^method (\w+)", file.read(), re.M))
    equal({method for row in TABLE for method in row[1]}, methods, "methods of this table and of the interface")


def test_man_page():
    with open(f"{SOURCE}/docs/gpuprobed.8.scd") as file:
        section = file.read().split("\n# AUTHORISATION\n", 1)[1].split("\n# ", 1)[0]
    lines = [line for line in section.splitlines() if re.match(r"[\[|:]", line)]
    cells = [re.sub(r"^[\[|:\]]+|[*_\\]", "", line).strip() for line in lines]
    width = 1 + len(COLUMNS)
    rows = [tuple(cells[i : i + width]) for i in range(0, len(cells), width)]
    equal(rows[0][1:], COLUMNS)
    equal(rows[1:], [(what, *wanted.split()) for what, _, _, wanted in TABLE], "the table of the man page and this one")


def test_cells():
    failed = []
    with System(SETTINGS + "user-attach = yes\n") as daemon:
        world = World(USERS["owner"], USERS["application"])
        for _ in range(4):  # what detach() takes: root and the owner, twice
            USERS["owner"].get("Attach", object=OBJECTS["counter"], filter={"comm": "nobody"})
        last = [row for row in TABLE if row[2] is clear_cache]  # it takes what other rows look at
        table = [row for row in TABLE if row[2] is not trace_file or has_probes()]  # whose a file is, only who could have the probe is told
        for setting, rows in (("yes", table), ("no", table), ("yes", last), ("no", last)):
            daemon.reload(f"{SETTINGS}user-attach = {setting}\n")
            for what, _, cell, wanted in [row for row in rows if rows is last or row not in last]:
                root, group, on, off, other = wanted.split()
                for name, expected in ("owner", on if setting == "yes" else off), ("other", other), ("member", group), ("root", root):
                    try:
                        got = "yes" if cell(world, USERS[name]) else "no"
                    except Failed as error:
                        got = str(error)
                    if got != expected:
                        failed.append(f"{what}: {name}, user-attach={setting}: {got}, expected {expected}")
    check(not failed, "\n  ".join(["cells:", *failed]))


def test_own_processes():
    """What a user attaches by user-attach means his own processes alone: not those of others, and none that had other rights, whatever he asks for."""
    with System(SETTINGS + "user-attach = yes\n") as daemon:
        owner, application, other, dropped = (USERS[name] for name in ("owner", "application", "other", "dropped"))
        attached = owner.get("Attach", object=OBJECTS["counter"])["attachments"][0]
        equal(attached["filter"], {"uid": OWNER})
        check(application.ask("load")[1]["made"], "the owner's process")
        for user in other, dropped:
            answer = user.ask("load")[1]
            equal((answer["made"], answer["reason"]), (False, "no attachment means this process"), f"uid {user.uid}")
        for name in "other", "member":
            equal(USERS[name].call("Detach", id=attached["id"])[0], "NotFound")
        error, reply = owner.call("Attach", object=OBJECTS["counter"], filter={"uid": OTHER})
        equal((error, reply["reason"]), ("PermissionDenied", "processes of others: only root and members of the group gpuprobe may attach to them"))
        daemon.reload(SETTINGS)  # what is attached stays
        equal([a["id"] for a in owner.get("List")["attachments"]], [attached["id"]])
        error, reply = owner.call("Attach", object=OBJECTS["counter"])
        equal(
            (error, reply["reason"]),
            ("PermissionDenied", "only root and members of the group gpuprobe may attach (user-attach = yes would let users attach to their own processes)"),
        )
        # a member's means everybody
        mine = USERS["member"].get("Attach", object=OBJECTS["counter"])["attachments"][0]["id"]
        check(other.ask("load")[1]["made"] and dropped.ask("load")[1]["made"], "a member's attachment")
        USERS["member"].get("Detach", id=mine)


def test_private_daemon():
    """Whom the system's daemon lets not attach has a private one, for attach -- CMD and for gputrace; whom it lets, or who may not even ask, needs no other way."""
    app = [VEC_ADD, "--threads", "512", "--block", "128", "--launches", "2"]
    attach = [CTL, "attach", COUNTER, "--", *app]
    gputrace = [os.path.join(BUILD, "ctl/gputrace/gputrace"), "-e", "thread:vectorAdd { @ = count(); }", "--", *app]
    environment = {name: value for name, value in os.environ.items() if name != "GPUPROBE_SESSION"} | {"LD_LIBRARY_PATH": SIM}

    def attached(command):
        done = subprocess.run(command, user=OWNER, group=OWNER, extra_groups=[], capture_output=True, text=True, env=environment, cwd="/", timeout=100)
        equal(done.returncode, 0, done.stderr)
        equal(re.sub(r"^threads=.*\n", "", done.stdout, flags=re.M).split()[-1], "1024", done.stderr)
        return "without CAP_BPF nothing is verified" in done.stderr

    with System(SETTINGS) as daemon:
        for command in attach, gputrace:
            check(attached(command), "by a private daemon")
        check("attachment" not in daemon.text(), daemon.text())
        daemon.reload(SETTINGS + "user-attach = yes\n")
        for command in attach, gputrace:
            check(not attached(command), "by the system's")
        equal(daemon.text().count("by uid " + str(OWNER)) > 1, True, daemon.text())
        daemon.reload(SETTINGS)
        os.chmod(f"{DIRECTORY}/io.gpuprobe.control", 0o600)
        for command in attach, gputrace:
            check(attached(command), "where the daemon may not be asked")
        os.chmod(f"{DIRECTORY}/io.gpuprobe.control", 0o666)


def test_logs_in_turn():
    """Who follows all logs yields to the owner of one that is read, and has it again afterwards."""

    def as_owner(*command, **more):
        return subprocess.Popen(
            command,
            user=OWNER,
            group=OWNER,
            extra_groups=[],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": SIM, **more},
        )

    with System(SETTINGS + "user-attach = yes\n") as daemon, tempfile.TemporaryFile("w+") as followed:

        def lines():
            followed.seek(0)
            return followed.read().count("\n")

        out, err = as_owner(CTL, "attach", "--ring-size=64K", obj("log")).communicate(timeout=60)
        check(out, err)
        # of 256 lines each, of which the ring holds those of a few
        program = as_owner(VEC_ADD, "--threads", "256", "--launches", "150", "--sleep-ms", "10", LD_PRELOAD=SHIM)
        follower = subprocess.Popen([CTL, "log", "-f"], stdout=followed, stderr=subprocess.DEVNULL, env={**os.environ, **daemon.tools()})
        wait_until(lines, "lines")
        out, err = as_owner(CTL, "log").communicate(timeout=60)
        check("FAIL" not in out, out)
        before = lines()
        out, err = program.communicate(timeout=120)
        check("PASS" in out, out + err)
        wait_until(lambda: lines() > before + 5000, "lines behind the owner's turn")
        follower.terminate()
        follower.wait(timeout=20)


def test_hooks_in_a_row():
    """Looking for hooks takes the loop a while: users cannot keep it busy with that, root is never refused."""
    with System(SETTINGS):
        answers = [USERS["other"].call("ListHooks")[0] for _ in range(50)]
        if "Unavailable" in answers:
            return  # built without
        check(not answers[0] and answers[1] == "LimitExceeded" and set(answers) <= {None, "LimitExceeded"}, answers)
        equal({USERS["root"].call("ListHooks")[0] for _ in range(5)}, {None})


def test_attaches_at_once():
    """One more than may be in work is refused. Those whose client has gone are in work until the worker that hangs is ended."""
    with System(SETTINGS + "user-attach = yes\n", "--program-worker-argument=--test-fault=hang"):
        for name, limit in ("other", 4), ("member", 64), ("root", 64):
            refused = ("LimitExceeded", {"what": "attaches of one user in work", "limit": limit})
            equal(USERS[name].ask("attach_at_once", n=limit + 1), refused, name)
            equal(USERS[name].ask("attach_at_once", n=1), refused, name)


USERS = {}


def inside():
    groups = "/run/group"
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    with open("/etc/group") as old, open(groups, "w") as new:
        new.write("".join(line for line in old if not line.startswith("gpuprobe:")) + f"gpuprobe:x:{GROUP}:\n")
    os.chmod(groups, 0o644)
    subprocess.run(["mount", "--bind", groups, "/etc/group"], check=True)
    os.environ.pop("GPUPROBE_SESSION", None)
    USERS.update(root=User(0), member=User(MEMBER, [GROUP]), owner=User(OWNER), other=User(OTHER), application=User(OWNER), dropped=User(OWNER, dumpable=False))
    main([value for name, value in list(globals().items()) if name.startswith("test_")])


if __name__ == "__main__":
    if os.environ.get("TEST_AUTHORISATION") == "inside":
        inside()
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if os.getuid() != 0 or subprocess.run([*unshare, "true"], capture_output=True, timeout=60).returncode != 0:
        print("skipped: needs root and mount namespaces")
        sys.exit(SKIP)
    sys.exit(subprocess.run([*unshare, sys.executable, *sys.argv], env={**os.environ, "TEST_AUTHORISATION": "inside"}, timeout=200).returncode)
