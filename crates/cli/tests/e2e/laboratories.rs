//! Laboratories as their users meet them: one for a command, one that stays, mistakes, and what a kill leaves behind.

use crate::bed::{Bed, Ran, program};
use std::process::Command;

/// All that the program says about a wrong call, in two lines.
fn refusal(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().collect()
}

#[test]
fn a_command_runs_at_a_site_of_a_checked_laboratory_and_its_code_is_passed_on() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let ran =
        bed.run(&["lab", "run", "interstate", "--record", "run.json", "--", "ping", "-c", "3", "-i", "0.01", "b"]);
    let text = String::from_utf8(ran.succeeded().stdout).unwrap();
    assert!(text.contains("3 received"), "{text}");
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(bed.path("run.json")).unwrap()).unwrap();
    let round_trip = &record["round_trips"][0];
    let expected_us = round_trip["expected_us"].as_f64().unwrap();
    assert!((20_000.0..20_001.0).contains(&expected_us) && round_trip["received"] == 40, "{round_trip}");
    assert!(record["seed"] == 1 && record["machine"]["kernel"].is_string() && record["lateness"]["buckets"].is_array());
    let counts = &record["links"][0]["counts"];
    assert!(counts["packets"].as_u64().unwrap() >= 43, "{counts}");
    let at_b = bed.run(&["lab", "run", "quad", "--at", "b", "--", "sh", "-c", "getent hosts a.wan2; exit 7"]);
    assert_eq!((at_b.code, String::from_utf8(at_b.stdout).unwrap().contains("10.102.1.1")), (Some(7), true));
}

#[test]
fn a_laboratory_stays_up_is_changed_and_goes_down() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let name = format!("t{}", std::process::id());
    let lab = |args: &[&str]| bed.run(&[&["lab"], args].concat());
    let text = |ran: Ran| String::from_utf8(ran.succeeded().stdout).unwrap();
    let up = text(lab(&["up", "metro", "--name", &name]));
    assert!(up.starts_with(&format!("{name} is up")) && up.contains("round trip"), "{up}");
    let again = lab(&["up", "metro", "--name", &name]);
    assert!(again.code == Some(2) && again.stderr.contains("hint: give this one a `--name`"), "{}", again.stderr);
    assert!(text(lab(&["exec", "--lab", &name, "a", "--", "ip", "-br", "addr"])).contains("10.101.1.1"));
    assert!(
        text(lab(&["set", "--lab", &name, "wan", "rtt=30ms", "loss=1%"]))
            .contains("wan  a -> b  15ms 10Gbit queue 1bdp loss 1%")
    );
    let wrong = lab(&["set", "--lab", &name, "wan", "speed=3"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("speed"), "{}", wrong.stderr);
    let status: serde_json::Value = serde_json::from_str(text(lab(&["status", &name, "--json"])).trim()).unwrap();
    assert!(status["name"] == name && status["links"][0]["settings"] == "15ms 10Gbit queue 1bdp loss 1%", "{status}");
    assert!(text(lab(&["down", &name])).contains("is down"));
    let gone = lab(&["exec", "--lab", &name, "a", "--", "true"]);
    assert!(
        gone.stderr.contains(&format!("no laboratory {name:?} is up")) || gone.stderr.contains("no laboratory is up")
    );
}

#[test]
fn a_wrong_scenario_is_named_with_what_would_be_right() {
    let bed = Bed::new();
    let pair = "[site.a]\n[site.b]\n[link.wan]\nbetween = ['a', 'b']\n";
    for (text, said) in [
        ("spede = 3\n", "spede"),
        ("[site.a]\n[site.b]\n[link.wan]\nbetween = ['a', 'c']\n", "\"c\""),
        (&format!("{pair}rate = '10GB'\n"), "line 5, link.wan.rate: \"10GB\" is not a rate"),
        (&format!("{pair}rate = '1bit'\n"), "8kbit"),
        (&format!("{pair}rate = '1Tbit'\ndelay = '9s'\n"), "GiB"),
        (&format!("{pair}loss = '101%'\n"), "101%"),
        (&format!("{pair}corrupt = '1%'\nbackend = 'nfqueue'\n"), "backend"),
    ] {
        bed.write("wrong.toml", text.as_bytes());
        let ran = bed.run(&["lab", "up", "wrong.toml"]);
        let lines = refusal(&ran);
        assert!(ran.code == Some(2) && lines.len() == 2 && lines[0].contains(said), "{said}: {lines:?}");
        assert!(lines[0].starts_with("error: ") && lines[1].starts_with("hint: "), "{lines:?}");
    }
    let ran = bed.run(&["lab", "run", "moon", "--", "true"]);
    assert_eq!(
        refusal(&ran),
        ["error: moon is neither a preset nor a file", "hint: `thalweg lab presets` lists the presets"]
    );
}

#[test]
fn every_preset_is_listed_drawn_and_written_as_scripts() {
    let bed = Bed::new();
    let listed = String::from_utf8(bed.run(&["lab", "presets"]).succeeded().stdout).unwrap();
    let names: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 12 && names.contains(&"sc09") && names.contains(&"continent"), "{listed}");
    for name in names {
        let svg = String::from_utf8(bed.run(&["lab", "draw", name]).succeeded().stdout).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains(name), "{name}");
        bed.run(&["lab", "emit", name, "-o", name]).succeeded();
        assert!(std::fs::read_dir(bed.path(name)).unwrap().count() >= 2, "{name}");
    }
    let again = bed.run(&["lab", "emit", "metro", "-o", "metro"]);
    assert!(again.code == Some(1) && again.stderr.contains("metro"), "{}", again.stderr);
}

#[test]
fn every_preset_stands_with_stock_or_tuned_hosts() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let listed = String::from_utf8(bed.run(&["lab", "presets"]).succeeded().stdout).unwrap();
    for (index, name) in listed.lines().filter_map(|line| line.split_whitespace().next()).enumerate() {
        let (settings, bytes) = [("stock", "4194304"), ("tuned", "")][index % 2];
        let script = "cat /proc/sys/net/ipv4/tcp_wmem; ip -br addr show up";
        let args = ["lab", "run", name, "--host-settings", settings, "--", "sh", "-c", script];
        let text = String::from_utf8(bed.run(&args).succeeded().stdout).unwrap();
        assert!(text.lines().next().unwrap().ends_with(bytes) && text.contains("10.10"), "{name}: {text}");
    }
}

/// Kills what holds a laboratory at moments of its building, running and removal; the last lines tell what stayed.
const KILLS: &str = r#"
program=$1 count=$2 state=$3; shift 3
mount -t tmpfs none /run
cd /
for i in $(seq "$count"); do
    if [ $((i % 2)) = 0 ]; then
        "$@" "$program" lab run metro -- sleep 98761 & pid=$!
    else
        echo 'name = "metro"
[site.a]
[site.b]
[link.wan]
between = ["a", "b"]
rtt = "2ms"' | "$@" "$program" lab hold >/run/said & pid=$!
    fi
    sleep "0.$(printf %03d $((i * 37 % 400)))"
    kill -9 $pid; wait $pid 2>/dev/null
    ls "$state" | grep -v lock >>/run/tokens
done
"$@" "$program" lab down --all >/run/down || echo "down failed"
ls /run/netns 2>/dev/null | sed 's/^/namespace /'
ls "$state" | grep -v lock | sed 's/^/record /'
for token in $(sort -u /run/tokens); do ls -d /etc/netns/tw-$token-* 2>/dev/null; done | sed 's/^/file /'
pgrep -ax sleep | grep 98761 | sed 's/^/process /'
echo "killed $count"
"#;

#[test]
fn a_laboratory_killed_at_any_moment_leaves_nothing_after_the_sweep() {
    if !needs::root() {
        return;
    }
    let count = std::env::var("THALWEG_TEST_KILLS").unwrap_or_else(|_| "10".into());
    // Where that user can run it.
    let copy = tempfile::Builder::new().prefix("thalweg-e2e-").tempdir().unwrap();
    std::fs::set_permissions(copy.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let for_all = copy.path().join("thalweg");
    std::fs::copy(program(), &for_all).unwrap();
    let user = 60_000 + std::process::id() % 5_000;
    let as_user = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()];
    let without_root = std::env::temp_dir().join(format!("thalweg-lab-{user}"));
    for (state, prefix) in [
        ("/run/thalweg-lab".into(), vec![]),
        (without_root.clone(), [vec!["setpriv".into()], as_user.to_vec()].concat()),
    ] {
        // A `/run` of its own, so that the sweep finds nobody else's laboratory.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", KILLS, "sh"]).arg(&for_all).arg(&count);
        let output = command.arg(state).args(&prefix).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.trim(), format!("killed {count}"), "{prefix:?} {said}");
    }
    std::fs::remove_dir_all(without_root).unwrap();
}
