//! `thalweg man`: the manual pages, one for each command, made from the same definition as the help.

use crate::exit::{Result, of_file, usage};
use crate::output;
use clap::Command;
use clap_mangen::Man;
use model::Exit;
use std::fs;
use std::path::PathBuf;

/// Print a manual page, or write all of them to a directory
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg man cp | man -l -                        read the page of one command\n\
\x20   thalweg man --out ~/.local/share/man/man1        then `man thalweg-cp` finds it")]
pub struct Args {
    /// The command whose page is printed [default: the program's own]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write the pages of all commands here
    #[arg(long, value_name = "DIR", conflicts_with = "command", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
}

pub fn run(args: Args, program: Command) -> Result<Exit> {
    let pages = pages(program);
    let Some(directory) = &args.out else {
        let name = [&["thalweg".to_owned()][..], &args.command].concat().join("-");
        let found = pages.iter().find(|(page, _)| *page == name).ok_or_else(|| {
            usage(
                format!("there is no command {}", output::shown(args.command.join(" "))),
                "`thalweg --help` lists them",
            )
        })?;
        output::text(&found.1);
        return Ok(Exit::Done);
    };
    fs::create_dir_all(directory).map_err(|e| of_file("make directory", directory, &e))?;
    for (name, page) in &pages {
        let file = directory.join(format!("{name}.1"));
        fs::write(&file, page).map_err(|e| of_file("write", &file, &e))?;
    }
    output::note(&format!(
        "wrote {} to {}",
        output::counted(pages.len() as u64, "page", "pages"),
        output::shown(directory)
    ));
    Ok(Exit::Done)
}

/// Every page by its name, `thalweg-endpoint-add`.
fn pages(mut program: Command) -> Vec<(String, String)> {
    program.build();
    let mut pages = Vec::new();
    let mut open = vec![(program, "thalweg".to_owned())];
    while let Some((command, name)) = open.pop() {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            open.push((sub.clone(), format!("{name}-{}", sub.get_name())));
        }
        pages.push((name.clone(), page(command, name)));
    }
    pages.sort();
    pages
}

fn page(command: Command, name: String) -> String {
    // The title of a page is the command's name, and it must live as long as the program.
    let title: &'static str = Box::leak(name.into_boxed_str());
    let mut roff = Vec::new();
    let page =
        Man::new(command.name(title)).manual("Thalweg manual").source(concat!("thalweg ", env!("CARGO_PKG_VERSION")));
    page.render(&mut roff).expect("memory takes what is written to it");
    String::from_utf8_lossy(&roff).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let pages = pages(crate::args::program());
        let page = |name: &str| &pages.iter().find(|(page, _)| page == name).unwrap().1;
        assert!(page("thalweg").starts_with(".ie") || page("thalweg").contains(".TH thalweg 1"));
        assert!(page("thalweg-endpoint-add").contains("Examples"));
        assert!(page("thalweg-cp").contains("fsync"));
    }
}
