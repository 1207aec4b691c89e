//! The tarball of `packaging/tarball/build`, packed from the binary of the tests.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use tideline_tests::corpora::workspace;
use tideline_tests::server::binary;
use tideline_tests::skip;

#[test]
fn the_tarball_has_what_its_readme_and_unit_name() {
    for program in ["bash", "gzip", "strip", "tar"] {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(&format!("{program} is missing"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let packed = output(
        Command::new(workspace().join("packaging/tarball/build"))
            .arg(binary())
            .arg(folder.path())
            .env("COMPRESSION", "1"),
    );
    let tarball = packed.trim();
    output(
        Command::new("tar")
            .arg("-xzf")
            .arg(tarball)
            .arg("-C")
            .arg(folder.path()),
    );
    let list = output(Command::new("tar").arg("-tzf").arg(tarball));
    let name = list.split('/').next().expect("a folder");
    let paths: BTreeSet<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .map(|path| path.trim_matches('/'))
        .collect();
    let top = folder.path().join(name);

    for file in ["README.md", "lib/systemd/system/tideline.service"] {
        let text = fs::read_to_string(top.join(file)).expect("a text");
        let named = named_paths(&text);
        assert!(named.len() > 2, "{file}: {named:?}");
        for path in named {
            assert!(paths.contains(path), "{file}: {path} is not packed");
        }
    }
    let changelog = fs::read_to_string(top.join("CHANGELOG.md")).expect("a text");
    for path in links(&changelog) {
        assert!(paths.contains(path), "CHANGELOG.md: {path} is not packed");
    }

    let version = output(Command::new(top.join("bin/tideline")).arg("--version"));
    assert!(name.starts_with(&version.split(' ').take(2).collect::<Vec<_>>().join("-")));
    output(
        Command::new(top.join("bin/tideline"))
            .args(["config", "check", "--config", "etc/tideline/tideline.toml"])
            .current_dir(&top),
    );
    let completion = top.join("share/bash-completion/completions/tideline");
    output(Command::new("bash").arg("-n").arg(completion));
    assert!(paths.contains("share/man/man1/tideline-serve.1.gz"), "{list}");
}

/// Returns the output of a command that succeeds.
#[track_caller]
fn output(command: &mut Command) -> String {
    let ran = command.output().expect("the program runs");
    let error = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{command:?}: {}: {error}", ran.status);
    String::from_utf8(ran.stdout).expect("it is text")
}

/// Returns the targets of the links, and all words that are paths in the tarball.
fn named_paths(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| c.is_whitespace() || "`()[],".contains(c));
    let is_path = |word: &&str| {
        let folders = ["bin/", "docs/", "etc/", "lib/", "share/"];
        folders.iter().any(|folder| word.starts_with(folder))
    };
    let paths = words.filter(is_path);
    let paths = paths.map(|word| word.trim_end_matches(['/', '.']));
    paths.chain(links(text)).collect()
}

/// Returns the targets of the links to files, without fragments.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.starts_with("http") && !target.starts_with('#'));
    files.map(|target| target.split('#').next().unwrap_or_default())
}
