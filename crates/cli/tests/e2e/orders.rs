//! Copies between two permanent endpoints: handed in, carried out without anybody there, found again.

use crate::bed::{Bed, Ran, Server, behind, contents, noise, signal, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::net::{TcpListener, TcpStream};

/// Two endpoints, which their client knows as `sitea` and `siteb`.
pub struct Sites {
    pub bed: Bed,
    a: Server,
    b: Server,
}

fn serve(bed: &Bed, name: &str, listen: &str, more: &[&str]) -> Server {
    let (root, ticket) = (format!("root-{name}"), format!("ticket-{name}"));
    fs::create_dir_all(bed.path(&root)).unwrap();
    fs::create_dir_all(bed.path(name)).unwrap();
    let mut command =
        bed.command(name, &["serve", "--listen", listen, "--root", &root, "--ticket-file", &ticket, "--name", name]);
    command.args(more);
    bed.serve_with(command)
}

impl Sites {
    pub fn new() -> Sites {
        Sites::with(&[], &[])
    }

    fn with(of_a: &[&str], of_b: &[&str]) -> Sites {
        let bed = Bed::new();
        let (a, b) = (serve(&bed, "sitea", "127.0.0.1:0", of_a), serve(&bed, "siteb", "127.0.0.1:0", of_b));
        for name in ["sitea", "siteb"] {
            bed.run(&["endpoint", "add", name, "--ticket-file", &format!("ticket-{name}")]).succeeded();
        }
        Sites { bed, a, b }
    }

    pub fn tree(&self) {
        for (path, bytes) in [("x/one", 10), ("x/sub/two", 3 << 20), ("x/sub/three", 0)] {
            self.bed.write(&format!("root-sitea/{path}"), &noise(bytes, bytes as u64));
        }
    }

    fn is_whole(&self) -> bool {
        let there = self.bed.path("root-siteb/y");
        there.exists() && contents(&self.bed.path("root-sitea/x")) == contents(&there)
    }

    #[track_caller]
    pub fn job(&self, what: &str, id: &str) -> Value {
        self.bed.run(&["job", what, "--json", id]).succeeded().events().pop().unwrap()
    }

    /// Hands a job in that takes a while.
    fn detach_slow(&self, more: &[&str]) -> String {
        self.bed.write("root-sitea/x/big", &noise(24 << 20, 7));
        let ran = self.bed.run(&[&["cp", "--detach", "--bwlimit", "4M", "sitea:x/", "siteb:y/"], more].concat());
        id_of(ran.succeeded())
    }
}

/// The last word on standard output.
pub fn id_of(ran: Ran) -> String {
    let text = String::from_utf8(ran.stdout).unwrap();
    text.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn data_goes_straight_from_one_endpoint_to_the_other() {
    let sites = Sites::new();
    sites.tree();
    let ran = sites.bed.run(&["cp", "sitea:x/", "siteb:y/"]).succeeded();
    assert!(sites.is_whole(), "{}", ran.stderr);
    assert!(ran.stderr.contains("directly between the two endpoints"), "{}", ran.stderr);
    // Again: nothing is left to do.
    let done = sites.bed.run(&["cp", "--json", "sitea:x/", "siteb:y/"]).succeeded().done();
    assert_eq!((&done["files"]["skipped"], &done["code"]), (&3.into(), &0.into()), "{done}");
    // What has changed meanwhile is replaced, and lies beside nothing.
    sites.bed.write("root-sitea/x/one", &noise(11, 11));
    let done = sites.bed.run(&["cp", "--json", "sitea:x/", "siteb:y/"]).succeeded().done();
    assert_eq!(done["files"]["ok"], 1, "{done}");
    assert!(sites.is_whole(), "{:?}", contents(&sites.bed.path("root-siteb/y")));
    let (_, log) = sites.b.stop();
    assert!(log.contains("@warrant-of-"), "{log}");
}

#[test]
fn the_jobs_own_failures_are_the_commands() {
    let sites = Sites::new();
    sites.tree();
    for (words, code, text) in [
        (&["cp", "sitea:absent", "siteb:y/"][..], 4, "absent: no such file or directory"),
        (&["cp", "sitea:../x", "siteb:y/"], 6, "cannot leave it"),
        (&["cp", "sitea:x", "siteb:../y/"], 6, "cannot leave it"),
        (&["cp", "--detach", "sitea:absent", "siteb:y/"], 4, "absent: no such file or directory"),
        (&["cp", "--detach", "sitea:x", "y/"], 2, "--detach is for copies between two endpoints"),
        (&["cp", "-n", "sitea:x", "siteb:y/"], 2, "--dry-run is not for copies between two endpoints"),
        (&["cp", "--manifest", "m", "sitea:x", "siteb:y/"], 2, "--manifest is not for copies"),
        (&["job", "show", "sitea/00000000000000000000000000000000"], 1, "has no job of this id"),
        (&["job", "show", "nonsense"], 2, "is not the id of a job"),
    ] {
        let ran = sites.bed.run(words);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(text), "{words:?}: {}", ran.stderr);
        assert!(ran.error().contains("hint: "), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn a_copy_within_one_endpoint_neither_lies_in_its_source_nor_removes_it() {
    let sites = Sites::new();
    sites.tree();
    sites.bed.run(&["endpoint", "add", "alias", "--ticket-file", "ticket-sitea"]).succeeded();
    let before = contents(&sites.bed.path("root-sitea"));
    let removed = "x/sub/ is inside sitea:x/, and would be removed with what is not in it";
    for (words, text) in [
        (&["sync", "--delete", "sitea:x/sub/", "sitea:x/"][..], removed),
        (&["sync", "--delete", "alias:x/sub/", "sitea:x/"], removed),
        (&["cp", "sitea:x/", "alias:x/copy/"], "alias:x/copy/ is inside sitea:x/, which is to be copied"),
        (&["cp", "--detach", "sitea:x", "sitea:x/sub/"], "sitea:x/sub/ is inside sitea:x, which is to be copied"),
        (&["cp", "sitea:x/one", "alias:x"], "sitea:x/one and alias:x are the same"),
    ] {
        let ran = sites.bed.run(words);
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        assert!(ran.error().contains(text), "{words:?}: {}", ran.stderr);
    }
    assert_eq!(contents(&sites.bed.path("root-sitea")), before);
    // What lies beside it is copied.
    sites.bed.run(&["sync", "--delete", "sitea:x/", "alias:z/"]).succeeded();
    assert_eq!(contents(&sites.bed.path("root-sitea/z")), contents(&sites.bed.path("root-sitea/x")));
}

/// As with Ctrl-C and at once the same command with another rate.
#[test]
fn the_same_command_with_another_rate_has_that_one() {
    let sites = Sites::new();
    sites.bed.write("root-sitea/x/big", &noise(24 << 20, 7));
    let client = sites.bed.start(&["cp", "--bwlimit", "100K", "sitea:x/", "siteb:y/"]);
    let listed = || sites.bed.run(&["job", "ls", "--json", "sitea"]).succeeded().events();
    until("the job", || listed().first().is_some_and(|job| job["status"] == "running"));
    signal(&client, Signal::INT);
    assert_eq!(sites.bed.wait(client).code, Some(130));
    // At that rate it would take four minutes.
    let begun = std::time::Instant::now();
    sites.bed.run(&["cp", "sitea:x/", "siteb:y/"]).succeeded();
    assert!(sites.is_whole() && begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

#[test]
fn what_failed_and_how_durable_the_rest_is_are_events_as_in_any_copy() {
    let sites = Sites::new();
    sites.tree();
    fs::create_dir_all(sites.bed.path("root-siteb/y/one")).unwrap();
    let ran = sites.bed.run(&["cp", "--json", "sitea:x/", "siteb:y/"]);
    let done = ran.done();
    assert_eq!(ran.code, Some(23), "{}", ran.stderr);
    assert!(["batch", "memory"].contains(&done["durable"].as_str().unwrap_or_default()), "{done}");
    assert_eq!(done["files"], json!({"ok": 2, "skipped": 0, "failed": 1}));
    let events = ran.events();
    let failed: Vec<&Value> = events.iter().filter(|event| event["event"] == "file").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!((&failed[0]["path"], &failed[0]["outcome"]), (&"one".into(), &"failed".into()), "{failed:?}");
}

/// The other endpoint takes connections, and answers nothing.
#[test]
fn ctrl_c_cancels_a_job_before_the_endpoints_have_met() {
    let sites = Sites::new();
    sites.tree();
    kill_process(Pid::from_raw(sites.b.pid() as i32).unwrap(), Signal::STOP).unwrap();
    let client = sites.bed.start(&["cp", "sitea:x/", "siteb:y/"]);
    let listed = || sites.bed.run(&["job", "ls", "--json", "sitea"]).succeeded().events();
    until("the job", || !listed().is_empty());
    signal(&client, Signal::INT);
    let ran = sites.bed.wait(client);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(ran.error().contains("hint: to continue, give the same command again"), "{}", ran.stderr);
    let id = listed()[0]["id"].as_str().unwrap().to_owned();
    until("its end", || sites.job("show", &id)["status"] == "cancelled");
}

#[test]
fn a_detached_job_is_found_again_steered_and_forgotten() {
    let sites = Sites::new();
    let id = sites.detach_slow(&[]);
    assert!(id.starts_with("sitea/") && id.len() == 38, "{id}");
    until("it to move", || {
        sites.job("show", &id)["bytes"]["ok"].as_u64() > Some(0) || sites.job("show", &id)["status"] == "running"
    });
    sites.bed.run(&["job", "pause", &id]).succeeded();
    until("the pause", || sites.job("show", &id)["status"] == "paused");
    assert!(!sites.is_whole());
    let refused = sites.bed.run(&["job", "rm", &id]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    sites.bed.run(&["job", "resume", &id]).succeeded();
    let watched = sites.bed.run(&["job", "watch", &id]).succeeded();
    assert!(sites.is_whole(), "{}", watched.stderr);
    let listed = sites.bed.run(&["job", "ls", "--json"]).succeeded().events();
    assert_eq!((listed.len(), &listed[0]["id"], &listed[0]["status"]), (1, &id[..].into(), &"succeeded".into()));
    sites.job("retry", &id);
    let bare = id.split_once('/').unwrap().1;
    assert_eq!(sites.bed.run(&["job", "watch", bare]).succeeded().code, Some(0));
    assert_eq!(sites.job("show", &id)["attempt"], 2);
    sites.bed.run(&["job", "rm", &id]).succeeded();
    assert!(sites.bed.run(&["job", "ls"]).succeeded().stdout.is_empty());
}

#[test]
fn a_cancelled_job_ends_its_watcher_with_its_code() {
    let sites = Sites::new();
    let id = sites.detach_slow(&["--json"]);
    let id = serde_json::from_str::<Value>(&id).map_or(id, |value| value["id"].as_str().unwrap().to_owned());
    let watching = sites.bed.start(&["job", "watch", &id]);
    sites.bed.run(&["job", "cancel", &id]).succeeded();
    let watched = sites.bed.wait(watching);
    assert_eq!(watched.code, Some(45), "{}", watched.stderr);
    assert_eq!(sites.job("show", &id)["status"], "cancelled");
}

#[test]
fn a_job_outlives_its_client_and_kills_of_either_endpoint() {
    let mut sites = Sites::new();
    sites.bed.write("root-sitea/x/big", &noise(24 << 20, 7));
    let mut client = sites.bed.start(&["cp", "--bwlimit", "4M", "sitea:x/", "siteb:y/"]);
    let listed = |sites: &Sites| sites.bed.run(&["job", "ls", "--json", "sitea"]).succeeded().events();
    until("the job", || listed(&sites).first().is_some_and(|job| job["status"] == "running"));
    client.kill().unwrap();
    client.wait().unwrap();
    let id = listed(&sites)[0]["id"].as_str().unwrap().to_owned();
    for (name, which) in [("siteb", false), ("sitea", true)] {
        let server = if which { &mut sites.a } else { &mut sites.b };
        let address = server.address.clone();
        server.kill();
        *server = serve(&sites.bed, name, &address, &[]);
    }
    let watched = sites.bed.run(&["job", "watch", &id]).succeeded();
    assert!(sites.is_whole(), "{}", watched.stderr);
}

#[test]
fn the_destination_fetches_where_the_source_cannot_reach_it() {
    let sites = Sites::new();
    sites.tree();
    // The first three connections are those of the endpoint that is to send.
    let relay = refusing_relay(&sites.b.address, 3);
    let file = sites.bed.path("client/config_home/thalweg/endpoints/siteb.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&sites.b.address, &relay)).unwrap();
    let ran = sites.bed.run(&["cp", "sitea:x/", "siteb:y/"]).succeeded();
    assert!(ran.stderr.starts_with("siteb carries this out as job siteb/"), "{}", ran.stderr);
    assert!(sites.is_whole(), "{}", ran.stderr);
    let first = sites.bed.run(&["job", "ls", "--json", "sitea"]).succeeded().events();
    assert_eq!(first[0]["status"], "cancelled", "{first:?}");
}

#[test]
fn where_one_endpoint_carries_out_no_jobs_the_other_does() {
    let sites = Sites::with(&["--no-orders"], &[]);
    sites.tree();
    let ran = sites.bed.run(&["cp", "sitea:x/", "siteb:y/"]).succeeded();
    assert!(ran.stderr.starts_with("siteb carries this out as job siteb/"), "{}", ran.stderr);
    assert!(sites.is_whole(), "{}", ran.stderr);
    let sites = Sites::with(&["--no-orders"], &["--no-orders"]);
    let ran = sites.bed.run(&["cp", "sitea:x/", "siteb:y/"]);
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    assert!(ran.stderr.contains("carries out no jobs"), "{}", ran.stderr);
}

#[test]
fn trees_are_synchronized_moved_and_compared_between_endpoints() {
    let sites = Sites::new();
    sites.tree();
    sites.bed.write("root-siteb/y/extraneous", b"x");
    sites.bed.run(&["sync", "--delete", "sitea:x/", "siteb:y/"]).succeeded();
    assert!(sites.is_whole());
    sites.bed.run(&["check", "sitea:x", "siteb:y"]).succeeded();
    sites.bed.run(&["mv", "sitea:x", "siteb:z"]).succeeded();
    let names = |path: &str| contents(&sites.bed.path(path)).len();
    assert!(!sites.bed.path("root-sitea/x").exists());
    assert_eq!(names("root-siteb/z"), names("root-siteb/y"));
}

#[test]
fn a_client_without_the_right_hands_nothing_in() {
    let sites = Sites::new();
    sites.tree();
    let client = |endpoint: &str, flags: &[&str]| {
        let name = format!("{endpoint}-{}", flags[0].trim_start_matches("--"));
        let file = format!("{name}.ticket");
        let issue = [&["ticket", "new", "--ticket-file", &file][..], flags].concat();
        sites.bed.finish(sites.bed.command(endpoint, &issue)).succeeded();
        file
    };
    let (write_only, read_only) = (client("sitea", &["--write-only"]), client("siteb", &["--read-only"]));
    let run = |home: &str, args: &[&str]| {
        fs::create_dir_all(sites.bed.path(home)).unwrap();
        sites.bed.finish(sites.bed.command(home, args))
    };
    for (home, of_a, of_b, text) in [
        ("anna", &write_only[..], "ticket-siteb", "this client may only write here"),
        ("bert", "ticket-sitea", &read_only[..], "this client may only read here"),
    ] {
        for (name, ticket) in [("sitea", of_a), ("siteb", of_b)] {
            run(home, &["endpoint", "add", name, "--ticket-file", ticket]).succeeded();
        }
        let ran = run(home, &["cp", "sitea:x/", "siteb:y/"]);
        assert_eq!(ran.code, Some(6), "{}", ran.stderr);
        assert!(ran.stderr.contains(text), "{}", ran.stderr);
    }
    assert!(!sites.bed.path("root-siteb/y").exists());
    // Bert's job is there, and nobody else's business.
    let of_bert = run("bert", &["job", "ls", "--json", "sitea"]).succeeded().events();
    let id = of_bert[0]["id"].as_str().unwrap().to_owned();
    for what in ["show", "cancel", "retry", "rm"] {
        let ran = sites.bed.run(&["job", what, &id]);
        assert_eq!(ran.code, Some(1), "{what}: {}", ran.stderr);
        assert!(ran.stderr.contains("has no job of this id"), "{what}: {}", ran.stderr);
    }
}

#[test]
fn a_job_that_the_endpoint_has_no_space_to_write_down_is_refused_and_said() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    for directory in ["root-sitea/x", "sitea/state_home/thalweg"] {
        fs::create_dir_all(bed.path(directory)).unwrap();
    }
    let state = bed.path("sitea/state_home/thalweg");
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    bed.write("root-sitea/x/f", b"f");
    let serve = bed.command(
        "sitea",
        &["serve", "--listen", "127.0.0.1:0", "--root", "root-sitea", "--ticket-file", "ticket-sitea"],
    );
    let script = "mount -t tmpfs -o size=1m,mode=700 thalweg-e2e \"$0\" && exec \"$@\"";
    let state = state.to_str().unwrap();
    let _a = bed.serve_with(behind(&["unshare", "--mount", "sh", "-c", script, state], &serve));
    let _b = serve_other(&bed);
    for name in ["sitea", "siteb"] {
        bed.run(&["endpoint", "add", name, "--ticket-file", &format!("ticket-{name}")]).succeeded();
    }
    // A list of files makes the order as long as what is left of the storage.
    let list: String = (0..5000).map(|n| format!("a-name-that-takes-some-room-{n:08}\n")).collect();
    bed.write("list", list.as_bytes());
    let mut codes = Vec::new();
    for n in 0..8 {
        let ran = bed.run(&["cp", "--detach", "--files-from", "list", "sitea:x", &format!("siteb:y{n}")]);
        codes.push((ran.code, ran.stderr));
    }
    let refused = codes.iter().find(|(code, _)| *code == Some(44)).unwrap_or_else(|| panic!("{codes:?}"));
    assert!(refused.1.contains("no space left to record the job"), "{}", refused.1);
}

fn serve_other(bed: &Bed) -> Server {
    serve(bed, "siteb", "127.0.0.1:0", &[])
}

/// Forwards connections to an address, but for the first ones, which it ends.
fn refusing_relay(to: &str, refused: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.to_owned();
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            if number < refused {
                continue;
            }
            let server = TcpStream::connect(&to).unwrap();
            for (mut from, mut into) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

/// What waits in the buffer of `siteb`, in bytes.
#[cfg(feature = "fuse")]
fn held(bed: &Bed) -> u64 {
    let listed = bed.finish(bed.command("siteb", &["buffer", "ls", "--json"])).succeeded();
    listed.events().last().unwrap()["used_bytes"].as_u64().unwrap()
}

#[cfg(feature = "fuse")]
#[test]
fn the_far_endpoint_keeps_what_its_storage_does_not_take_and_delivers_it_when_both_were_killed() {
    if !needs::fuse() {
        return;
    }
    let bed = Bed::new();
    let _storage = crate::bed::slow_storage(&bed, "root-siteb", &["--rate", "3MB"]);
    let address = || format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    let (at_a, at_b) = (address(), address());
    let with = |name: &str, at: &str, more: &[&str]| serve(&bed, name, at, more);
    let (mut a, mut b) = (with("sitea", &at_a, &[]), with("siteb", &at_b, &["--buffer", "buffer:64MiB"]));
    for name in ["sitea", "siteb"] {
        bed.run(&["endpoint", "add", name, "--ticket-file", &format!("ticket-{name}")]).succeeded();
    }
    for file in 0..12 {
        bed.write(&format!("root-sitea/x/{file}"), &noise(1 << 20, file));
    }
    let id = id_of(bed.run(&["cp", "--detach", "sitea:x/", "siteb:y/"]).succeeded());
    until("something to wait", || held(&bed) > 0);
    let told = || bed.run(&["job", "show", &id]).succeeded().stdout;
    until("the job to tell of it", || String::from_utf8_lossy(&told()).contains("waiting at the destination"));
    a.kill();
    b.kill();
    let _b = with("siteb", &at_b, &["--buffer", "buffer:64MiB"]);
    until("delivery without the sender", || held(&bed) == 0);
    let _a = with("sitea", &at_a, &[]);
    bed.run(&["job", "watch", &id]).succeeded();
    // Where the storage keeps it, reading is not slow.
    assert_eq!(contents(&bed.path("root-sitea/x")), contents(&bed.path("root-siteb-backing/y")));
}
