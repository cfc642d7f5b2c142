//! The command blocks of the book and of README: each runs as it is written, or states why it cannot run here.
//!
//! The words after the language of a block decide: `recipe=NAME` has a test of its own in `e2e_recipes`, `run=MACHINE`
//! runs here line by line, `norun=REASON` does not run. As in the recipes, files stand for devices, and lines that
//! mount, make file systems or attach block devices are left to the virtual machine's tests.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test; what fails here is a failure, and the command that failed stands before it"
)]

use std::fs::File;
use std::path::Path;

use zc_tests::{MIB, World, workspace};

use crate::e2e_recipes::Machine;

/// Reasons for which a block does not run here.
const NORUN: [(&str, &str); 9] = [
    ("ublk", "it attaches a block device, which this machine's kernel may lack"),
    ("package", "it installs or removes a package; `cargo xtask test --only package` does"),
    ("build", "it builds or tests the source itself"),
    ("container", "it runs the daemon in a container"),
    ("hosts", "it names a second machine, or a program of another product"),
    ("kernel", "it needs the kernel's NBD driver, or a virtual machine"),
    ("root-disk", "it changes the disk that the machine runs from; the virtual machine's tests do"),
    ("boot", "it changes what the machine starts; `e2e_setup` has the command itself"),
    ("serves", "it runs until Ctrl-C; the tests of quickstart end it"),
];
/// Machines on which blocks run.
const MACHINES: [&str; 6] = ["serving", "stopped", "new", "bare-store", "store", "folder"];
/// Languages of blocks that hold commands.
const COMMANDS: [&str; 2] = ["sh", "console"];
/// Languages of all others.
const OTHERS: [&str; 7] = ["text", "toml", "ini", "json", "xml", "rust", "python"];
/// Sparse files, large enough for the book's commands.
const VOLUME_MIB: u64 = 16 << 10;
const SSD_MIB: u64 = 64 << 10;

/// A block of a page.
#[derive(Debug)]
struct Block {
    /// Page and line.
    place: String,
    info: String,
    lines: Vec<String>,
}

impl Block {
    fn language(&self) -> &str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    /// The value of a word behind the language.
    fn word(&self, name: &str) -> Option<&str> {
        let words = self.info.split_whitespace().skip(1);
        words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The commands: in `console` those behind a prompt, the rest is output.
    fn commands(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        let mut continues = false;
        for line in &self.lines {
            let prompted = ["$ ", "# "].iter().find_map(|prompt| line.strip_prefix(prompt));
            let command = if self.language() == "console" { prompted } else { Some(line.as_str()) };
            match (command, continues) {
                (_, true) => commands.last_mut().expect("it began").push_str(line),
                (Some(command), false) => commands.push(command.to_owned()),
                (None, false) => {}
            }
            continues = line.ends_with('\\');
            if continues {
                commands.last_mut().expect("it began").pop();
            }
        }
        commands
    }
}

/// The blocks of a page.
fn blocks(path: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(path).expect("a page");
    let name = path.strip_prefix(workspace()).expect("in the tree").display().to_string();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let place = format!("{name}:{}", number + 1);
                open = Some(Block { place, info: info.to_owned(), lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block does not end");
    blocks
}

/// The commands of README and the book that run here.
pub(crate) fn commands_run() -> Vec<String> {
    let run =
        book().into_iter().filter(|block| block.word("run").is_some() || block.word("recipe").is_some());
    run.flat_map(|block| block.commands()).collect()
}

/// The blocks of README and the book.
fn book() -> Vec<Block> {
    let pages = std::fs::read_dir(workspace().join("docs/src")).expect("the book");
    let mut pages: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(workspace().join("README.md"));
    pages.sort();
    pages.iter().flat_map(|page| blocks(page)).collect()
}

/// Returns the reason if a block breaks the rule.
fn broken(block: &Block) -> Option<String> {
    let language = block.language();
    let of = |what: &str| Some(format!("{}: ```{}: {what}", block.place, block.info));
    if OTHERS.contains(&language) {
        return None;
    }
    if !COMMANDS.contains(&language) {
        return of("its language is unknown");
    }
    let words = ["recipe", "run", "norun"].map(|name| block.word(name));
    match words {
        [Some(_), None, None] => None,
        [None, Some(machine), None] if MACHINES.contains(&machine) => {
            if block.commands().is_empty() {
                of("it has no command")
            } else {
                None
            }
        }
        [None, None, Some(reason)] if NORUN.iter().any(|(known, _)| *known == reason) => None,
        _ => of("it needs recipe=NAME, run=MACHINE or norun=REASON, as e2e_book has them"),
    }
}

#[test]
fn each_block_of_commands_runs_or_says_why_not() {
    let blocks = book();
    assert!(blocks.len() > 60, "{} blocks", blocks.len());
    let broken: Vec<String> = blocks.iter().filter_map(broken).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let run = blocks.iter().filter(|block| block.word("run").is_some()).count();
    assert!(run > 15, "only {run} blocks run");
    for (reason, _) in NORUN {
        assert!(
            blocks.iter().any(|block| block.word("norun") == Some(reason)),
            "no block has norun={reason}"
        );
    }
}

#[test]
fn the_rule_sees_what_breaks_it() {
    let block = |info: &str| Block {
        place: "here".to_owned(),
        info: info.to_owned(),
        lines: ["$ a \\".to_owned(), "  b".to_owned(), "out".to_owned(), "# c".to_owned()].into(),
    };
    for info in ["", "sh", "console", "sh run=mars", "sh norun=lazy", "sh run=new norun=ublk", "bash run=new"]
    {
        assert!(broken(&block(info)).is_some(), "{info}");
    }
    for info in ["text", "sh run=new", "console norun=ublk", "sh recipe=any"] {
        assert_eq!(broken(&block(info)), None);
    }
    assert_eq!(block("console run=new").commands(), ["a   b", "c"]);
}

/// A machine of this kind.
fn machine(kind: &str) -> Machine {
    let mut world = World::new(64, VOLUME_MIB);
    "vm".clone_into(&mut world.volumes[0].0);
    world.cache = "weu_max_age = \"100 ms\"\n".to_owned();
    world.cache_path = "my-ssd-part3".into();
    for (name, mib) in
        [("my-ssd-part3", SSD_MIB), ("NEW-SSD", SSD_MIB), ("my-disk", 1024), ("scratch.img", 1024)]
    {
        let file = File::create(world.path(name)).expect("cannot make a device");
        file.set_len(mib * MIB).expect("cannot size a device");
    }
    std::fs::write(world.path("image.raw"), vec![7; 4 << 20]).expect("cannot write an image");
    std::fs::write(world.path("mail-me"), "#!/bin/sh\n").expect("cannot write a hook");
    if kind.ends_with("store") {
        let lines = format!("[[store]]\nname = \"tank\"\npath = \"{}\"\n", world.path("my-disk").display());
        world.cache.push_str(&lines);
        world.volumes.clear();
        world.add_thin("disk", 64, "");
    } else {
        world.volumes[0].2 = "mode = \"write-back\"\n".to_owned();
        world.volumes.push(("db".to_owned(), VOLUME_MIB * MIB, String::new()));
    }
    let _path = world.configure();
    let mut machine = Machine { world, daemon: None };
    if kind == "store" {
        machine.line("zcctl store create /dev/disk/by-id/my-disk");
    }
    if ["serving", "stopped", "store"].contains(&kind) {
        machine.systemctl("start");
    }
    if kind == "stopped" {
        machine.systemctl("stop");
    }
    machine
}

/// Runs all blocks for machines of this kind, each on its own.
fn run_all(kind: &str) {
    let blocks: Vec<Block> = book().into_iter().filter(|block| block.word("run") == Some(kind)).collect();
    assert!(!blocks.is_empty(), "no block runs on a {kind} machine");
    for block in blocks {
        let mut machine = machine(kind);
        for command in block.commands() {
            eprintln!("{}: {command}", block.place);
            machine.line(&command);
        }
    }
}

#[test]
fn commands_for_a_daemon_that_serves() {
    run_all("serving");
}

#[test]
fn commands_for_a_daemon_that_is_stopped() {
    run_all("stopped");
}

#[test]
fn commands_for_a_new_machine() {
    run_all("new");
}

#[test]
fn commands_for_a_store() {
    run_all("bare-store");
    run_all("store");
}

#[test]
fn commands_that_need_a_folder_alone() {
    run_all("folder");
}
