//! The traps: each is set in a scene and sprung with one command of the victim's.
//!
//! What a trap says of its own is that the command did not end as it has to; what it aims at is looked at by the scene.

use super::{ATTACKER, Scene};
use crate::process::Ended;
use anyhow::{Result, bail, ensure};
use std::ffi::OsStr;
use std::fs;

pub struct Trap {
    pub name: &'static str,
    pub faults: &'static [&'static str],
    pub spring: fn(&Scene) -> Result<()>,
}

const fn trap(name: &'static str, faults: &'static [&'static str], spring: fn(&Scene) -> Result<()>) -> Trap {
    Trap { name, faults, spring }
}

pub const TRAPS: &[Trap] = &[
    trap("links in a runtime directory", &["F044"], runtime_links),
    trap("top in a directory of others", &["F044"], top_elsewhere),
    trap("links beside a manifest", &["F044"], manifest_link),
    trap("a ticket over a link", &["F044"], ticket_over_link),
    trap("a configuration of others", &["F134"], foreign_configuration),
    trap("a configuration that others may write", &["F134"], open_configuration),
    trap("a configuration on a way that others may change", &["F134"], configuration_on_open_way),
    trap("an endpoint of others", &["F134"], foreign_endpoint),
    trap("an endpoint that others may write", &["F134"], open_endpoint),
    trap("a ticket that others may write", &["F134"], open_ticket),
    trap("a state directory of others", &["F039", "F134"], foreign_state),
    trap("a state directory that others may write", &["F039", "F134"], open_state),
    trap("an identity of others", &["F039", "F134"], foreign_identity),
    trap("variables that arm a removal", &["F134"], arming_variables),
    trap("a setting for all commands that arms a removal", &["F134"], arming_setting),
];

fn refused(ended: &Ended, why: &str) -> Result<()> {
    ensure!(ended.code.is_some_and(|code| code != 0), "the command went on: {}", ended.output);
    let (said, hint) = (ended.errors.contains(why), ended.errors.contains("hint: "));
    ensure!(said && hint, "the command did not say why and what to do: {}", ended.errors);
    Ok(())
}

fn done(ended: &Ended) -> Result<()> {
    ensure!(ended.code == Some(0), "the command failed: {}", ended.errors);
    Ok(())
}

/// What the status file of a transfer is called while it is written: the number of its process is known in advance.
fn runtime_links(scene: &Scene) -> Result<()> {
    scene.directory("theirs/thalweg/transfers", ATTACKER, 0o777)?;
    scene.give("theirs/thalweg", ATTACKER, 0o777)?;
    let plant =
        "for n in .$$.new $$.json .$$.json.new; do ln -s ../../../home/precious ../theirs/thalweg/transfers/$n; done";
    let runtime = scene.at("theirs");
    let copy = ["cp", "--bwlimit", "1MiB", "source", "copied"];
    done(&scene.run_after(plant, &copy, &[("XDG_RUNTIME_DIR", runtime.as_os_str())])?)
}

/// What is no status file was swept, wherever the directory led.
fn top_elsewhere(scene: &Scene) -> Result<()> {
    scene.directory("theirs/thalweg", ATTACKER, 0o755)?;
    scene.link("theirs/thalweg/transfers", "home/tree")?;
    let runtime = scene.at("theirs");
    done(&scene.run(&["top", "--once"], &[("XDG_RUNTIME_DIR", runtime.as_os_str())])?)
}

fn manifest_link(scene: &Scene) -> Result<()> {
    scene.give("theirs", ATTACKER, 0o777)?;
    let plant = "ln -s ../home/precious ../theirs/.thalweg-manifest-$$-m";
    done(&scene.run_after(plant, &["cp", "--manifest", "../theirs/m", "tree/leaf", "copied"], &[])?)
}

fn ticket_over_link(scene: &Scene) -> Result<()> {
    scene.link("home/ticket", "home/precious")?;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--root", "tree", "--ticket-file", "ticket", "--no-landlock"];
    refused(&scene.run(&serve, &[])?, "a link or a special file")
}

/// `ssh` in a configuration names a program to run.
const RUNS: &str = "[cp]\nssh = \"touch ran\"\n";
const BY_SSH: [&str; 3] = ["cp", "source", "nowhere.invalid:x"];

fn foreign_configuration(scene: &Scene) -> Result<()> {
    scene.directory("theirs/thalweg", ATTACKER, 0o755)?;
    scene.file("theirs/thalweg/config.toml", ATTACKER, 0o644, RUNS)?;
    let theirs = scene.at("theirs");
    refused(&scene.run(&BY_SSH, &[("XDG_CONFIG_HOME", theirs.as_os_str())])?, "belongs to user 4711")
}

fn open_configuration(scene: &Scene) -> Result<()> {
    scene.directory("home/.config/thalweg", scene.victim, 0o755)?;
    scene.file("home/.config/thalweg/config.toml", scene.victim, 0o666, RUNS)?;
    refused(&scene.run(&BY_SSH, &[])?, "chmod go-w")
}

fn configuration_on_open_way(scene: &Scene) -> Result<()> {
    scene.directory("home/.config/thalweg", scene.victim, 0o777)?;
    scene.file("home/.config/thalweg/config.toml", scene.victim, 0o644, RUNS)?;
    refused(&scene.run(&BY_SSH, &[])?, "above the configuration")
}

fn endpoint_file() -> String {
    format!(
        "name = \"lab\"\naddresses = [\"127.0.0.1:9\"]\npin = \"{}\"\nadded = \"2026-01-01T00:00:00Z\"\n",
        "00".repeat(32)
    )
}

fn foreign_endpoint(scene: &Scene) -> Result<()> {
    scene.directory("home/.config/thalweg/endpoints", scene.victim, 0o700)?;
    scene.file("home/.config/thalweg/endpoints/lab.toml", ATTACKER, 0o644, &endpoint_file())?;
    refused(&scene.run(&["ls", "lab:"], &[])?, "belongs to user 4711")
}

fn open_endpoint(scene: &Scene) -> Result<()> {
    scene.directory("home/.config/thalweg/endpoints", scene.victim, 0o700)?;
    scene.file("home/.config/thalweg/endpoints/lab.toml", scene.victim, 0o646, &endpoint_file())?;
    refused(&scene.run(&["ls", "lab:"], &[])?, "can be changed by others")
}

fn open_ticket(scene: &Scene) -> Result<()> {
    scene.file("home/ticket", scene.victim, 0o602, "twt1:x")?;
    refused(&scene.run(&["endpoint", "add", "lab", "--ticket-file", "ticket"], &[])?, "chmod go-w")
}

const SERVE: [&str; 8] =
    ["serve", "--listen", "127.0.0.1:0", "--root", "tree", "--no-landlock", "--state-dir", "state"];

fn foreign_state(scene: &Scene) -> Result<()> {
    scene.directory("home/state", ATTACKER, 0o777)?;
    refused(&scene.run(&SERVE, &[])?, "belongs to user 4711")
}

fn open_state(scene: &Scene) -> Result<()> {
    scene.directory("home/state", scene.victim, 0o777)?;
    refused(&scene.run(&SERVE, &[])?, "chmod go-w")?;
    ensure!(fs::read_dir(scene.at("home/state"))?.next().is_none(), "something was written there all the same");
    Ok(())
}

fn foreign_identity(scene: &Scene) -> Result<()> {
    scene.directory("home/state", scene.victim, 0o700)?;
    scene.file("home/state/identity.key", ATTACKER, 0o600, "a key that the attacker knows")?;
    refused(&scene.run(&SERVE, &[])?, "belongs to user 4711")
}

/// Each is set as it would be for another command.
fn arming_variables(scene: &Scene) -> Result<()> {
    scene.directory("home/empty", scene.victim, 0o755)?;
    for (variable, words) in [
        ("THALWEG_RECURSIVE", &["rm", "tree"][..]),
        ("THALWEG_FORCE", &["rm", "absent"]),
        ("THALWEG_DELETE", &["sync", "empty/", "tree/"]),
        ("THALWEG_APPLY", &["doctor"]),
        ("THALWEG_REPLACE", &["endpoint", "add", "lab", "--ticket-file", "absent"]),
        ("THALWEG_SUPER", &["serve", "--root", "tree"]),
        ("THALWEG_NO_LANDLOCK", &["serve", "--root", "tree"]),
        ("THALWEG_CROSS_MOUNTS", &["serve", "--root", "tree"]),
    ] {
        refused(&scene.run(words, &[(variable, OsStr::new("true"))])?, variable)?;
    }
    // For the command that it was set for it holds.
    let listed = scene.run(&["ls", "."], &[("THALWEG_RECURSIVE", OsStr::new("true"))])?;
    if !listed.output.contains("leaf") {
        bail!("ls does not take THALWEG_RECURSIVE any more: {}{}", listed.output, listed.errors);
    }
    Ok(())
}

fn arming_setting(scene: &Scene) -> Result<()> {
    scene.directory("home/.config/thalweg", scene.victim, 0o755)?;
    scene.file("home/.config/thalweg/config.toml", scene.victim, 0o644, "recursive = true\n")?;
    let ended = scene.run(&["rm", "tree"], &[])?;
    ensure!(ended.code.is_some_and(|code| code != 0), "rm removed a directory");
    scene.file("home/.config/thalweg/config.toml", scene.victim, 0o644, "[sync]\ndelete = true\n")?;
    scene.directory("home/empty", scene.victim, 0o755)?;
    refused(&scene.run(&["sync", "empty/", "tree/"], &[])?, "delete cannot be set here")
}
