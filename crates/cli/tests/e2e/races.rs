//! Races as their users meet them before anything runs: what is known, and what is refused. Whole races are tested in `bench`.

use crate::bed::Bed;

#[test]
fn the_list_names_every_rival_with_its_protection_and_described_tools_too() {
    let bed = Bed::new();
    bed.write("copy.toml", described("command = ['cp', '-r', '{source}/.', '{delivery}']\n").as_bytes());
    let ran = bed.run(&["bench", "compare", "--list", "--tool", "copy.toml"]).succeeded();
    let text = String::from_utf8(ran.stdout).unwrap();
    for name in ["globus-url-copy", "rsync", "rsync-ssh", "scp", "rclone", "xrdcp", "lftp", "tar", "cp", "copier"] {
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(name)), "{name}: {text}");
    }
}

#[test]
fn a_described_tool_with_a_mistake_is_refused_with_what_would_be_right() {
    let bed = Bed::new();
    for (client, said) in [
        ("comand = ['cp']\n", "comand"),
        (
            "command = ['cp', '{sorce}']\n",
            "known are {delivered}, {address}, {port}, {workspace}, {dir}, {source}, {delivery}, {folder}",
        ),
        ("command = []\n", "client.command: names no program"),
    ] {
        bed.write("wrong.toml", described(client).as_bytes());
        let ran = bed.run(&["bench", "compare", "--no-rivals", "--tool", "wrong.toml"]);
        assert!(ran.code == Some(2) && ran.error().contains(said), "{said}: {}", ran.stderr);
    }
    let ran = bed.run(&["bench", "compare", "--tool", "none.toml"]);
    assert!(ran.code == Some(2) && ran.error().contains("none.toml"), "{}", ran.stderr);
    let ran = bed.run(&["bench", "compare", "--resume"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("--out"), "{}", ran.stderr);
}

fn described(client: &str) -> String {
    format!(
        "name = 'copier'\npackage = 'coreutils'\nprotection = 'none'\nclass = 'local'\nversion = ['cp', '--version']\n\
         [client]\n{client}"
    )
}
