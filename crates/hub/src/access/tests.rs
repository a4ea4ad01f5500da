//! Tokens, rules and shares, as those who make them and those who use them see them.

use super::*;
use crate::JobFile;

const HOUR: Duration = Duration::from_secs(3600);

fn root() -> Principal {
    Principal::local(0)
}

fn access() -> (tempfile::TempDir, Access) {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path()).unwrap();
    (dir, access)
}

#[test]
fn a_token_is_known_until_it_expires_or_is_removed_and_never_kept() {
    let (dir, access) = access();
    let secret = access.new_token("ci", Scopes::parse("read,submit").unwrap(), HOUR).unwrap();
    assert!(secret.starts_with(PREFIX) && secret.len() == 68, "256 bits in hexadecimal digits");
    let who = access.recognise(&secret).unwrap();
    assert_eq!((&who.name[..], who.scopes.words()), ("token:ci", vec!["read", "submit"]));
    assert!(!who.is_admin() && !who.scopes.has(Scope::Steer) && who.scopes.has(Scope::Read));
    for wrong in ["", "twh_", &secret[..67], &format!("{secret}0"), &secret.to_uppercase()] {
        assert!(access.recognise(wrong).is_none(), "{wrong}");
    }
    let kept = std::fs::read_to_string(dir.path().join("access.json")).unwrap();
    assert!(!kept.contains(&secret[4..]), "the secret is in the file");
    // What was answered is durable; another hub of this directory knows it.
    assert!(Access::open(dir.path()).unwrap().recognise(&secret).is_some());
    assert_eq!(access.new_token("ci", Scopes::ALL, HOUR).unwrap_err().exit, Exit::LimitCrossed);
    access.add_rule(&root(), "allow token:ci read a:").unwrap();
    access.remove_token("ci").unwrap();
    assert!(access.recognise(&secret).is_none() && !access.is_current(&who) && access.rules(&root()).is_empty());
    let short = access.new_token("ci", Scopes::ALL, Duration::from_millis(1)).unwrap();
    while access.tokens().iter().any(|token| !token.is_expired) {
        std::thread::yield_now();
    }
    assert!(access.recognise(&short).is_none());
    // An expired one makes room for its successor.
    access.new_token("ci", Scopes::ALL, HOUR).unwrap();
    assert_eq!(access.tokens().len(), 1);
}

#[test]
fn what_a_token_allowed_ends_when_it_expires() {
    let (_dir, access) = access();
    let soon = Duration::from_millis(1);
    access.new_token("chief", Scopes::ALL, soon).unwrap();
    access.new_token("ci", Scopes::ORDINARY, soon).unwrap();
    for rule in ["allow token:ci read a:", "allow token:ci write b:"] {
        access.add_rule(&root(), rule).unwrap();
    }
    while access.tokens().iter().any(|token| !token.is_expired) {
        std::thread::yield_now();
    }
    let check = |who: &str| {
        let wish = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap().wish(who).unwrap();
        access.check_owner(&wish).map_err(|e| e.message)
    };
    assert_eq!(check("token:chief").unwrap_err(), "token:chief has no token that still holds");
    assert_eq!(check("token:ci").unwrap_err(), "token:ci has no token that still holds");
    assert!(!access.is_admin("token:chief"));
    assert_eq!(access.lapse().unwrap(), ["token:chief", "token:ci"]);
    assert!(access.lapse().unwrap().is_empty());
    // Its successor has what it had.
    access.new_token("ci", Scopes::ORDINARY, HOUR).unwrap();
    check("token:ci").unwrap();
}

#[test]
fn nobody_waits_for_a_change_and_none_is_written_that_changes_nothing() {
    use std::os::unix::fs::MetadataExt;
    let (dir, access) = access();
    let rule = access.add_rule(&root(), "allow token:ci read a:").unwrap();
    assert!(access.change(|_| Ok(access.held.try_read().is_ok())).unwrap());
    let file = || std::fs::metadata(dir.path().join("access.json")).unwrap().ino();
    let before = file();
    assert_eq!(access.add_rule(&root(), "allow token:ci read a:").unwrap().id, rule.id);
    assert_eq!(file(), before);
}

#[test]
fn what_makes_no_token_is_refused() {
    let (_dir, access) = access();
    for (name, scopes, lifetime) in [
        ("", Scopes::ALL, HOUR),
        ("a b", Scopes::ALL, HOUR),
        (&"x".repeat(65), Scopes::ALL, HOUR),
        ("a", Scopes::default(), HOUR),
        ("a", Scopes::ALL, LIFETIME_MAX + HOUR),
        ("a", Scopes::ALL, Duration::ZERO),
    ] {
        assert_eq!(access.new_token(name, scopes, lifetime).unwrap_err().exit, Exit::Usage, "{name} {lifetime:?}");
    }
    assert!(Scopes::parse("read,write").is_err() && Scopes::parse("").is_err());
}

#[test]
fn a_job_needs_a_rule_for_each_place_that_it_touches() {
    let (dir, access) = access();
    access.new_token("ci", Scopes::ORDINARY, HOUR).unwrap();
    let check = |text: &str| {
        let wish = JobFile::from_json(text).unwrap().wish("token:ci").unwrap();
        access.check("token:ci", &wish).map_err(|e| e.message)
    };
    let copy = r#"{"source":"a:run/7","destination":"b:in/7"}"#;
    assert_eq!(check(copy).unwrap_err(), "token:ci may not read a:run/7");
    access.add_rule(&root(), "allow token:ci read a:run").unwrap();
    assert_eq!(check(copy).unwrap_err(), "token:ci may not write b:in/7");
    access.add_rule(&root(), "allow token:ci write,read b:in").unwrap();
    check(copy).unwrap();
    for (other, said) in [
        (r#"{"source":"a:running/7","destination":"b:in/7"}"#, "may not read a:running/7"),
        (r#"{"source":["a:run/7","a:other"],"destination":"b:in/"}"#, "may not read a:other"),
        (r#"{"source":"a:run/7","destination":"b:inn"}"#, "may not write b:inn"),
        (r#"{"source":"a:","destination":"b:in"}"#, "may not read a:"),
        (
            r#"{"kind":"sync","source":"a:run/","destination":"b:in/","options":{"delete":true}}"#,
            "may not delete b:in/",
        ),
        (r#"{"source":"b:in/7","destination":"a:run/7"}"#, "may not write a:run/7"),
    ] {
        assert!(check(other).unwrap_err().contains(said), "{other}: {:?}", check(other));
    }
    let again = Access::open(dir.path()).unwrap();
    assert_eq!(again.rules(&root()).len(), 2);
    again.remove_rule(&root(), again.rules(&root())[0].id).unwrap();
    assert_eq!(again.add_rule(&root(), "allow token:ci read a:").unwrap().id, 3, "an id is given once");
    assert_eq!(again.remove_rule(&root(), 99).unwrap_err().exit, Exit::SourceFileNotFound);
}

#[test]
fn what_is_kept_beside_a_single_file_needs_a_rule_for_its_directory() {
    let (_dir, access) = access();
    access.new_token("ci", Scopes::ORDINARY, HOUR).unwrap();
    for rule in ["allow token:ci read a:run", "allow token:ci write b:in/7"] {
        access.add_rule(&root(), rule).unwrap();
    }
    let check = |job: &str, to: &str| {
        let text = format!(r#"{{{job},"destination":"b:{to}"}}"#);
        access.check("token:ci", &JobFile::from_json(&text).unwrap().wish("token:ci").unwrap())
    };
    let backups = r#""source":"a:run/x","options":{"backup-dir":"old"}"#;
    let list = r#""kind":"follow","source":"a:run/x","options":{"until":"close","sealed-list":"done"}"#;
    for job in [backups, list] {
        let refused = check(job, "in/7").unwrap_err();
        assert!(refused.message.starts_with("token:ci may not write b:in,"), "{}", refused.message);
        assert!(refused.hint.unwrap().contains("a slash"));
        check(job, "in/7/").unwrap();
    }
    check(r#""source":["a:run/x","a:run/y"],"options":{"backup-dir":"old"}"#, "in/7").unwrap();
    check(r#""source":"a:run/x""#, "in/7").unwrap();
    access.add_rule(&root(), "allow token:ci write b:in").unwrap();
    check(backups, "in/7").unwrap();
}

#[test]
fn a_file_that_others_can_read_or_that_is_damaged_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, access) = access();
    access.new_token("a", Scopes::ALL, HOUR).unwrap();
    let path = dir.path().join("access.json");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(Access::open(dir.path()).err().unwrap().exit, Exit::Refused);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, "{").unwrap();
    assert!(Access::open(dir.path()).err().unwrap().message.contains("cannot be read"));
}

#[test]
fn a_share_passes_on_what_its_maker_may_for_as_long_and_no_more() {
    let (_dir, access) = access();
    let somebody = |name: &str| Principal { name: format!("token:{name}"), scopes: Scopes::ORDINARY, token: None };
    let (anna, bert) = (somebody("anna"), somebody("bert"));
    for name in ["anna", "bert"] {
        access.new_token(name, Scopes::ORDINARY, HOUR).unwrap();
    }
    let check = |who: &str, path: &str| {
        let text = format!(r#"{{"source":"a:{path}","destination":"b:in/"}}"#);
        access.check(who, &JobFile::from_json(&text).unwrap().wish(who).unwrap()).is_ok()
    };
    let rule = |text: &str| access.add_rule(&root(), text).unwrap().id;
    let managing = rule("allow token:anna read,manage a:run");
    rule("allow token:anna write a:run");
    rule("allow token:anna read a:other");
    rule("allow token:bert write b:in");
    let soon = rfc3339(unix_ms() + 3_600_000);
    let share = |text: &str| access.add_rule(&anna, &text.replace("SOON", &soon));
    for (text, said) in [
        ("allow token:bert read a:run/7", "90 days at most"),
        ("allow token:bert read until 2099-01-01T00:00:00Z a:run/7", "90 days at most"),
        ("allow token:bert read until 2020-01-01T00:00:00Z a:run/7", "over already"),
        ("allow token:bert read until SOON a:", "may not let others read a:"),
        ("allow token:bert read until SOON a:other", "may not let others read a:other"),
        ("allow token:bert read,delete until SOON a:run", "may not let others delete a:run"),
        ("allow token:bert manage until SOON a:run", "may not let others manage a:run"),
        ("allow token:bert read until SOON by unix:0 a:run", "in another's name"),
    ] {
        let error = share(text).unwrap_err();
        assert!(error.message.contains(said), "{text}: {}", error.message);
    }
    let shared = share("allow token:bert read until SOON a:run/7").unwrap();
    assert!(shared.rule.contains("by token:anna"), "{}", shared.rule);
    assert!(check("token:bert", "run/7/x") && !check("token:bert", "run/8"));
    // What is shared with somebody is not that one's to share.
    let passed_on = access.add_rule(&bert, &format!("allow token:carl read until {soon} a:run/7")).unwrap_err();
    assert!(passed_on.message.contains("may not let others"), "{}", passed_on.message);
    assert_eq!((access.rules(&anna).len(), access.rules(&bert).len()), (1, 0));
    assert!(access.remove_rule(&bert, shared.id).is_err());
    // With what its maker may, the share ends, and comes back with it.
    assert_eq!(access.remove_rule(&root(), managing).unwrap(), ["token:anna", "token:bert"]);
    assert!(!check("token:bert", "run/7/x"));
    rule("allow token:anna read,manage a:");
    assert!(check("token:bert", "run/7/x"));
    assert_eq!(access.remove_rule(&anna, shared.id).unwrap(), ["token:bert"]);
    assert!(!check("token:bert", "run/7/x"));
}

#[test]
fn a_rule_ends_at_its_moment() {
    let (dir, access) = access();
    let until = (unix_ms() / 1000 + 2) * 1000;
    access.add_rule(&root(), &format!("allow token:ci read until {} a:", rfc3339(until))).unwrap();
    assert!(access.lapse().unwrap().is_empty() && access.rules(&root()).len() == 1);
    while unix_ms() < until {
        std::thread::yield_now();
    }
    assert_eq!(access.lapse().unwrap(), ["token:ci"]);
    assert!(Access::open(dir.path()).unwrap().rules(&root()).is_empty());
}
