//! Tests that shells can parse their completions, that bash completes names from the server, and that every command has
//! a manual page.
//!
//! Shells that are not installed are skipped.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::lab::Lab;
use crate::process::{output, text, tideline};

/// Returns the subcommands of a command, as its help lists them.
fn commands_of(path: &[&str]) -> Vec<String> {
    let help = output(tideline(&[path, &["--help"]].concat()));
    assert!(help.status.success(), "{path:?}");
    let help = text(&help.stdout);
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return Vec::new();
    };
    let names = list.lines().take_while(|line| line.starts_with("  "));
    names
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("deep").join("man1");
    let made = output(tideline(&["man", &pages.display().to_string()]));
    assert!(made.status.success(), "{made:?}");
    let mut wanted = BTreeSet::from(["tideline".to_owned()]);
    let mut rest: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = rest.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        for command in commands_of(&words) {
            let below = [path.clone(), vec![command]].concat();
            wanted.insert(format!("tideline-{}", below.join("-")));
            rest.push(below);
        }
    }
    assert!(
        wanted.len() > 30 && wanted.contains("tideline-jobs-run"),
        "{wanted:?}"
    );
    let found: BTreeSet<String> = std::fs::read_dir(&pages)
        .expect("the folder was made")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            let page = std::fs::read_to_string(&path).expect("a page");
            assert!(
                page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"),
                "{}",
                path.display()
            );
            path.file_stem()
                .and_then(|name| name.to_str())
                .expect("a name")
                .to_owned()
        })
        .collect();
    assert_eq!(found, wanted);
    check_with(
        "groff",
        &["-man", "-z", "-Tutf8"],
        &pages.join("tideline-write.1"),
    );
}

#[test]
fn shells_can_read_their_completions() {
    let folder = tempfile::tempdir().expect("a folder");
    for (shell, check) in [
        ("bash", &["-n"][..]),
        ("zsh", &["-n"]),
        ("fish", &["--no-execute"]),
    ] {
        let script = output(tideline(&["completions", shell]));
        assert!(script.status.success(), "{shell}");
        let script = text(&script.stdout);
        for command in commands_of(&[]) {
            assert!(
                script.contains(&command),
                "the completions of {shell} lack {command}"
            );
        }
        assert!(
            script.contains("batch-bytes"),
            "the completions of {shell} lack the options of write"
        );
        assert!(
            script.contains("complete --shell"),
            "the completions of {shell} do not request names from the server"
        );
        let path = folder.path().join(shell);
        std::fs::write(&path, script).expect("a file");
        check_with(shell, check, &path);
    }
}

/// Runs the completions in bash. bash splits words at `=`; tag values after the `=` must still be completed.
#[test]
fn bash_completes_names_from_the_server() {
    let lab = Lab::start();
    let points = lab.file(
        "in.lp",
        "cpu,host=web-1 v=1 1700000000000000000\ncpu,host=web-2 v=1 1700000000000000000\n",
    );
    lab.ok(&["write", &points, "--quiet"]);
    let completions = lab.file("tideline.bash", lab.ok(&["completions", "bash"]));
    let script = format!(
        "source {completions}\nCOMP_LINE='tideline find host=web-'\nCOMP_POINT=${{#COMP_LINE}}\n\
         COMP_WORDS=({} find host = web-)\nCOMP_CWORD=4\n_tideline_with_server\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        env!("CARGO_BIN_EXE_tideline")
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script])
        .env("TIDELINE_SERVER", &lab.url)
        .stdin(Stdio::null());
    let offered = output(bash);
    assert_eq!(text(&offered.stdout), "web-1\nweb-2\n", "{offered:?}");
}

/// Checks a file with a program. Without the program on this machine, nothing is checked.
fn check_with(program: &str, arguments: &[&str], file: &Path) {
    let looked = Command::new(program)
        .args(arguments)
        .arg(file)
        .stdin(Stdio::null())
        .output();
    match looked {
        Ok(looked) => assert!(
            looked.status.success() && looked.stderr.is_empty(),
            "{program} {}: {looked:?}",
            file.display()
        ),
        Err(_) => println!("{program} is not installed: {} is not checked", file.display()),
    }
}
