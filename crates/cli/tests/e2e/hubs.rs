//! A hub with two endpoints, each a process of its own: jobs are handed in, wait, run, end; the hub is killed and comes back.

use crate::bed::{Bed, Ends, Ran, Server, contents, noise, until};
use serde_json::Value;
use std::fs;
use std::process::{Child, Stdio};

/// Two endpoints that the hub knows as `sitea` and `siteb`. Only builds with the hub have these tests.
pub struct House {
    pub bed: Bed,
    _a: Server,
    _b: Server,
    hub: Option<Child>,
}

impl House {
    pub fn new() -> House {
        let bed = Bed::new();
        let serve = |name: &str| {
            let (root, ticket) = (format!("root-{name}"), format!("ticket-{name}"));
            fs::create_dir_all(bed.path(&root)).unwrap();
            fs::create_dir_all(bed.path(name)).unwrap();
            let words = ["serve", "--listen", "127.0.0.1:0", "--root", &root, "--ticket-file", &ticket, "--name", name];
            bed.serve_with(bed.command(name, &words))
        };
        let (a, b) = (serve("sitea"), serve("siteb"));
        let mut house = House { bed, _a: a, _b: b, hub: None };
        house.start();
        for name in ["sitea", "siteb"] {
            let ticket = format!("ticket-{name}");
            house.bed.run(&["endpoint", "add", name, "--ticket-file", &ticket, "--hub"]).succeeded();
        }
        house
    }

    pub fn start(&mut self) {
        self.hub = Some(self.bed.start(&["hub", "--state-dir", "hub-state", "--metrics", "unix:metrics"]));
        until("the hub to answer", || self.bed.run(&["queue"]).code == Some(0));
    }

    /// As `kill -9` does it.
    pub fn kill(&mut self) {
        let mut hub = self.hub.take().unwrap();
        hub.kill().unwrap();
        hub.wait().unwrap();
    }

    pub fn submit(&self, job: &str) -> Ran {
        self.bed.write("job.toml", job.as_bytes());
        self.bed.run(&["submit", "job.toml"])
    }

    #[track_caller]
    pub fn submitted(&self, job: &str) -> String {
        let ran = self.submit(job).succeeded();
        String::from_utf8(ran.stdout).unwrap().split_whitespace().last().unwrap().to_owned()
    }

    #[track_caller]
    pub fn job(&self, what: &str, id: &str) -> Value {
        self.bed.run(&["job", what, "--json", id]).succeeded().events().pop().unwrap()
    }

    pub fn all(&self) -> Vec<Value> {
        self.bed.run(&["job", "ls", "--json"]).succeeded().events()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(mut hub) = self.hub.take() {
            let _ = hub.kill();
            let _ = hub.wait();
        }
    }
}

#[test]
fn a_job_is_handed_in_carried_out_and_remembered() {
    let house = House::new();
    house.bed.write("root-sitea/x/one", &noise(3 << 20, 1));
    house.bed.write("root-sitea/x/sub/two", b"two");
    let text = "source = \"sitea:x/\"\ndestination = \"siteb:y/\"\n[labels]\nrun = \"7\"\n";
    let id = house.submitted(text);
    assert_eq!(id.len(), 32);
    let watched = house.bed.run(&["job", "watch", &id]).succeeded();
    assert!(watched.stderr.contains("copied 2 files"), "{}", watched.stderr);
    assert_eq!(contents(&house.bed.path("root-sitea/x")), contents(&house.bed.path("root-siteb/y")));
    let job = house.job("show", &id);
    assert_eq!((&job["status"], &job["code"], &job["attempt"]), (&"succeeded".into(), &0.into(), &1.into()), "{job}");
    // After its end the same job is another one; by its key it is the same.
    assert_ne!(house.submitted(text), id);
    let keyed = |key: &str| house.bed.run(&["submit", "job.toml", "--json", "--key", key]);
    let first = keyed("k1").succeeded().events().pop().unwrap();
    assert_eq!(keyed("k1").succeeded().events().pop().unwrap()["id"], first["id"]);
    house.bed.write("job.toml", b"source = \"sitea:x/\"\ndestination = \"siteb:z/\"\n");
    let refused = keyed("k1");
    assert!(refused.error().contains("this key was used for another job"), "{}", refused.stderr);
    house.bed.run(&["job", "rm", &id]).succeeded();
    assert_eq!(house.bed.run(&["job", "show", &id]).code, Some(1));
}

#[test]
fn what_is_wrong_is_said_when_it_is_handed_in_or_is_the_jobs_end() {
    let house = House::new();
    for (text, code, said) in [
        ("sorce = \"x\"", 2, "unknown field `sorce`"),
        ("[", 2, "not TOML"),
        ("{\"source\":", 2, "not JSON"),
        ("source = \"siteq:x\"\ndestination = \"siteb:y\"", 2, "the hub knows no endpoint siteq"),
        ("source = \"sitea:../x\"\ndestination = \"siteb:y\"", 6, "cannot leave it"),
        ("source = \"sitea:x\"\ndestination = \"siteb:y\"\nafter = [\"nonsense\"]", 2, "neither the id of a job"),
        (
            "source = \"sitea:x\"\ndestination = \"siteb:y\"\nafter = [\"00000000000000000000000000000000\"]",
            2,
            "there is no job",
        ),
    ] {
        let ran = house.submit(text);
        assert_eq!(ran.code, Some(code), "{text}: {}", ran.stderr);
        assert!(ran.stderr.contains(said) && ran.error().contains("hint: "), "{text}: {}", ran.stderr);
    }
    house.bed.write("raw", b"source = \"sitea:\xff\"");
    assert!(house.bed.run(&["submit", "raw"]).error().contains("not UTF-8"));
    let id = house.submitted("source = \"sitea:absent\"\ndestination = \"siteb:y/\"");
    let watched = house.bed.run(&["job", "watch", &id]);
    assert_eq!(watched.code, Some(4), "{}", watched.stderr);
    assert!(watched.error().contains("absent: no such file or directory"), "{}", watched.stderr);
}

#[test]
fn a_batch_is_taken_whole_or_not_at_all_and_follows_its_order() {
    let house = House::new();
    house.bed.write("root-sitea/data/f", b"data");
    house.bed.write("root-sitea/done", b"done");
    let line = |more: &str| format!("{{\"source\":\"sitea:data/\",\"destination\":\"siteb:in/\"{more}}}\n");
    house.bed.write("bad", format!("{}{}", line(""), line(",\"kind\":\"guess\"")).as_bytes());
    let refused = house.bed.run(&["batch", "bad"]);
    assert!(refused.error().contains("job 2: kind \"guess\""), "{}", refused.stderr);
    house.bed.write(
        "loop",
        format!("{}{}", line(",\"name\":\"a\",\"after\":[\"b\"]"), line(",\"name\":\"b\",\"after\":[\"a\"]"))
            .as_bytes(),
    );
    assert!(house.bed.run(&["batch", "loop"]).error().contains("in a loop: a, b"));
    assert!(house.all().is_empty());
    let last = "{\"source\":\"sitea:done\",\"destination\":\"siteb:in-done\",\"after\":[\"data\"]}\n";
    house.bed.write("good", format!("{last}{}", line(",\"name\":\"data\"")).as_bytes());
    let ran = house.bed.run(&["batch", "good"]).succeeded();
    let ids: Vec<String> = String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(ids.len(), 2);
    house.bed.run(&["job", "watch", &ids[0]]).succeeded();
    assert_eq!(house.job("show", &ids[1])["status"], "succeeded");
    assert_eq!(fs::read(house.bed.path("root-siteb/in-done")).unwrap(), b"done");
}

#[test]
fn jobs_are_paused_resumed_cancelled_and_begun_anew() {
    let house = House::new();
    house.bed.write("root-sitea/x/big", &noise(24 << 20, 7));
    let id = house.submitted("source = \"sitea:x/\"\ndestination = \"siteb:y/\"\nrate = \"4M\"");
    until("it to move", || {
        house.job("show", &id)["bytes"]["ok"].as_u64() > Some(0) || house.job("show", &id)["status"] == "running"
    });
    house.job("pause", &id);
    until("the pause", || house.job("show", &id)["status"] == "paused");
    assert_eq!(house.bed.run(&["job", "rm", &id]).code, Some(1));
    house.job("resume", &id);
    until("it to run again", || house.job("show", &id)["status"] == "running");
    house.job("cancel", &id);
    assert_eq!(house.bed.run(&["job", "watch", &id]).code, Some(45));
    house.job("retry", &id);
    house.bed.run(&["job", "watch", &id]).succeeded();
    assert_eq!(house.job("show", &id)["attempt"], 3);
    assert_eq!(contents(&house.bed.path("root-sitea/x")), contents(&house.bed.path("root-siteb/y")));
}

#[test]
fn a_killed_hub_goes_on_with_every_job_and_repeats_none() {
    let mut house = House::new();
    let jobs = 60;
    let mut batch = String::new();
    for job in 0..jobs {
        for file in 0..3 {
            house.bed.write(&format!("root-sitea/d{job}/f{file}"), &noise(1000, job * 8 + file));
        }
        batch.push_str(&format!("{{\"source\":\"sitea:d{job}/\",\"destination\":\"siteb:out/d{job}/\"}}\n"));
    }
    house.bed.write("batch", batch.as_bytes());
    house.bed.run(&["batch", "batch"]).succeeded();
    until("some to have ended", || house.all().iter().filter(|job| job["code"] == 0).count() > 3);
    house.kill();
    assert_eq!(house.bed.run(&["queue"]).code, Some(43));
    house.start();
    until("all to have ended", || house.all().iter().all(|job| job["code"].is_i64()));
    let all = house.all();
    assert!(all.len() == jobs as usize && all.iter().all(|job| job["status"] == "succeeded"), "{all:?}");
    for job in 0..jobs {
        let (from, to) = (format!("root-sitea/d{job}"), format!("root-siteb/out/d{job}"));
        assert_eq!(contents(&house.bed.path(from)), contents(&house.bed.path(to)), "{job}");
    }
    // What is done twice finds its files there the second time.
    let is_single = |job: &Value| job["report"]["files"]["ok"] == 3 && job["report"]["files"]["skipped"] == 0;
    assert!(all.iter().all(is_single), "{all:?}");
    // Another one with the same state, or at the same place, is refused.
    let second = house.bed.run(&["hub", "--state-dir", "hub-state"]);
    assert!(second.error().contains("is in use by process"), "{}", second.stderr);
    let third = house.bed.run(&["hub", "--state-dir", "other-state"]);
    assert!(third.error().contains("another hub listens there"), "{}", third.stderr);
}

#[test]
fn an_open_job_is_given_another_rate_class_and_priority() {
    let house = House::new();
    house.bed.write("root-sitea/x/big", &noise(48 << 20, 7));
    let id = house.submitted("source = \"sitea:x/\"\ndestination = \"siteb:y/\"\nrate = \"256K\"");
    until("it to move", || {
        house.job("show", &id)["bytes"]["ok"].as_u64() > Some(0) || house.job("show", &id)["status"] == "running"
    });
    // Both endpoints count it as what it is now.
    house.bed.run(&["job", "class", &id, "low"]).succeeded();
    let counts = |site: &str| {
        let shares = house.bed.finish(house.bed.command(site, &["contract", "shares", "--json"])).succeeded().events();
        shares.iter().filter_map(|share| share["class"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    until("the class at both ends", || ["sitea", "siteb"].iter().all(|site| counts(site) == ["low"]));
    assert_eq!(house.job("show", &id)["attempt"], 1, "the hub gave it once");
    // At the old rate it would take three minutes.
    let changed = house.bed.run(&["job", "rate", "--json", &id, "200M"]).succeeded().events().pop().unwrap();
    assert_eq!(changed["job"]["rate"], "209715200B", "{changed}");
    house.bed.run(&["job", "watch", &id]).succeeded();
    assert_eq!(contents(&house.bed.path("root-sitea/x")), contents(&house.bed.path("root-siteb/y")));
    let late = house.bed.run(&["job", "rate", &id, "off"]);
    assert!(late.code == Some(1) && late.error().contains("only an open job"), "{}", late.stderr);
}

#[test]
fn a_hub_keeps_its_variables_from_the_endpoint_that_it_starts() {
    let bed = Bed::new();
    bed.write("data/x/one", b"one");
    let mut command = bed.command("client", &["hub", "--state-dir", "hub-state", "--serve", "data"]);
    // One socket for both could be bound by the hub alone.
    command.env("THALWEG_METRICS", "unix:m").stdout(Stdio::null()).stderr(Stdio::null());
    let _hub = Ends(command.spawn().unwrap());
    bed.write("job.toml", b"source = \"here:x/\"\ndestination = \"here:y/\"");
    until("the endpoint", || bed.run(&["submit", "job.toml"]).code == Some(0));
}

#[test]
fn a_hub_serves_a_directory_of_its_own_and_finds_its_endpoint_again() {
    let bed = Bed::new();
    bed.write("data/x/one", b"one");
    let start = || {
        let hub = bed.start(&["hub", "--state-dir", "hub-state", "--serve", "data"]);
        until("the endpoint", || {
            bed.write("job.toml", b"source = \"here:x/\"\ndestination = \"here:y/\"");
            bed.run(&["submit", "job.toml"]).code == Some(0)
        });
        hub
    };
    let mut hub = start();
    let ids = || {
        let jobs = bed.run(&["job", "ls", "--json"]).succeeded().events();
        jobs.into_iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    bed.run(&["job", "watch", &ids()[0]]).succeeded();
    assert_eq!(fs::read(bed.path("data/y/one")).unwrap(), b"one");
    hub.kill().unwrap();
    hub.wait().unwrap();
    fs::remove_dir_all(bed.path("data/y")).unwrap();
    let mut hub = start();
    bed.run(&["job", "watch", &ids()[0]]).succeeded();
    assert_eq!(fs::read(bed.path("data/y/one")).unwrap(), b"one");
    let here = fs::read_to_string(bed.path("hub-state/here/lock")).unwrap();
    let pid = rustix::process::Pid::from_raw(hub.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(hub.wait().unwrap().success());
    assert!(!bed.path(format!("/proc/{}", here.trim())).exists(), "it ended with its hub");
}
