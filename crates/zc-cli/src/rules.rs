//! Rules of help, as in CONTRIBUTING; tests of the programs apply them to their command lines.
//!
//! The first line of a command's help begins with an imperative verb; so does that of an option without a value. The
//! first line of an option or argument with a value names the value. Each has at most 70 characters, and no line uses
//! a word that hides the actor or the object. The program's long help ends with its exit status.

use clap::{Arg, ArgAction, Command};

/// Most characters in the first line of help.
const LINE_CHARS_MAX: usize = 70;

/// Words that help does not use, because they hide the actor or replace a term of the field.
const VAGUE: [&str; 10] =
    ["nobody", "somebody", "lack", "lacks", "owe", "owes", "owed", "believe", "believed", "out of reach"];

/// Words that begin no first line.
const NO_BEGINNINGS: [&str; 14] =
    ["It", "Its", "Those", "Who", "Whose", "What", "That", "Also", "With", "How", "Do", "Go", "Let", "Have"];

/// Heading of the exit statuses in a program's long help.
pub const EXIT_STATUS: &str = "Exit status:";

/// Statuses of every program: success, failure or a problem found, and a wrong command line.
const STATUSES: [&str; 3] = ["0", "1", "2"];

/// Returns the faults in the help of a command line, one line each, with the command or option.
#[must_use]
pub fn faults(command: &Command) -> Vec<String> {
    let mut found = Vec::new();
    judge_exit_status(command, &mut found);
    judge_command(command, command.get_name(), &mut found);
    found
}

/// Judges the end of the long help: below [`EXIT_STATUS`] one line for each status, which begins with its number.
fn judge_exit_status(command: &Command, found: &mut Vec<String>) {
    let end = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let lines = end.lines().skip_while(|line| *line != EXIT_STATUS).skip(1);
    let named: Vec<&str> = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.trim_start().split_once("  ").map(|(status, _)| status))
        .collect();
    let missing = STATUSES.iter().filter(|status| !named.contains(status));
    let path = command.get_name();
    found.extend(missing.map(|status| format!("{path}: \"{EXIT_STATUS}\" does not say what {status} means")));
}

fn judge_command(command: &Command, path: &str, found: &mut Vec<String>) {
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        judge_argument(argument, path, found);
    }
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        let path = format!("{path} {}", verb.get_name());
        let first = verb.get_about().map(ToString::to_string).unwrap_or_default();
        judge_line(&first, &path, true, found);
        judge_words(&verb.get_long_about().map(ToString::to_string).unwrap_or(first), &path, found);
        judge_command(verb, &path, found);
    }
}

fn judge_argument(argument: &Arg, path: &str, found: &mut Vec<String>) {
    let path = format!("{path}: {}", argument.get_id());
    let first = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let is_switch = matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
    judge_line(&first, &path, is_switch, found);
    judge_words(&argument.get_long_help().map(ToString::to_string).unwrap_or(first), &path, found);
}

/// Judges a first line. `commands`: it has to begin with a verb in the imperative.
fn judge_line(line: &str, path: &str, commands: bool, found: &mut Vec<String>) {
    let chars = line.chars().count();
    if chars == 0 {
        found.push(format!("{path}: no help"));
    }
    if chars > LINE_CHARS_MAX {
        found.push(format!("{path}: {chars} characters, at most {LINE_CHARS_MAX} are allowed: {line}"));
    }
    let first = line.split([' ', ',', ':', ';']).next().unwrap_or_default();
    if NO_BEGINNINGS.contains(&first) {
        found.push(format!("{path}: begins with {first}: {line}"));
    }
    // A verb in the imperative is no article and ends neither as a plural nor as another form does.
    let is_noun = ["A", "An", "The", "No"].contains(&first) || first.ends_with('s') && !first.ends_with("ss");
    if commands && is_noun {
        found.push(format!("{path}: does not begin with a verb in the imperative: {line}"));
    }
}

fn judge_words(text: &str, path: &str, found: &mut Vec<String>) {
    let bare = text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), " ");
    let padded = format!(" {} ", bare.split_whitespace().collect::<Vec<_>>().join(" "));
    let vague = VAGUE.iter().filter(|word| padded.contains(&format!(" {word} ")));
    found.extend(vague.map(|word| format!("{path}: \"{word}\" leaves open what is meant")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Command {
        let end = "Exit status:\n  0  done\n  1  failed\n  2  wrong command line\n\nFiles:\n  3  none";
        Command::new("tool").after_long_help(end)
    }

    fn of(verb: &'static str, about: &'static str) -> Vec<String> {
        faults(&tool().subcommand(Command::new(verb).about(about)))
    }

    #[test]
    fn help_in_order_has_no_faults() {
        let file = Arg::new("file").help("File to read.");
        let force = Arg::new("force").long("force").action(ArgAction::SetTrue).help("Overwrite the file.");
        let verb = Command::new("read").about("Read a file.").args([file, force]);
        assert_eq!(faults(&tool().subcommand(verb)), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_what_breaks_it() {
        let long = "Read a file and then say in one very long line what was found there or was not.";
        let found = |about| of("read", about).len();
        assert_eq!(found(""), 1);
        assert_eq!(found(long), 1);
        assert_eq!(found("Those that were closed."), 1);
        assert_eq!(found("Files of a volume."), 1);
        assert_eq!(found("Write what the origin lacks."), 1);
        let switch = Arg::new("force").long("force").action(ArgAction::SetTrue).help("Also if it is open.");
        let faults = faults(&tool().arg(switch));
        assert_eq!(faults, ["tool: force: begins with Also: Also if it is open."]);
    }

    #[test]
    fn a_program_without_its_exit_status_is_found() {
        assert_eq!(faults(&Command::new("tool")).len(), STATUSES.len());
        let two = "Exit status:\n  0  done\n  2  wrong\n\nMore:\n  1  is no status";
        let found = faults(&Command::new("tool").after_long_help(two));
        assert_eq!(found, ["tool: \"Exit status:\" does not say what 1 means"]);
    }
}
