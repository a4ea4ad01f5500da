//! The page of the manual that lists the checks is what the suite has.

/// `CONFORMANCE_REWRITE=1` writes the list anew.
#[test]
fn the_manual_lists_the_checks() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md");
    let text = std::fs::read_to_string(page).unwrap();
    let begin = text.find("\n## Sources").expect("the page has a list");
    let written = format!("{}{}", &text[..begin], conformance::list());
    if std::env::var_os("CONFORMANCE_REWRITE").is_some() {
        std::fs::write(page, &written).unwrap();
    }
    assert!(written == text, "docs/stores.md lists other checks; CONFORMANCE_REWRITE=1 writes them");
}

#[test]
fn names_of_checks_are_distinct_and_say_something() {
    let mut names: Vec<_> = conformance::checks().map(|check| check.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    assert!(conformance::checks().all(|check| !check.says.is_empty() && !check.says.ends_with('.')));
}
