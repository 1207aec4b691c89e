//! Scripts of `docs/examples`: a sequence of runs for each application, with the expected output of each run.
//!
//! The scripts run in a shell, with the tested binary as `tideline`, against a separate server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tideline_tests::corpora::workspace;
use tideline_tests::server::{DataFolder, Server, binary};
use tideline_tests::{Client, Launch, wait};

/// Scripts of an application, which run in a separate working folder against a separate server.
struct Scripts {
    scripts: PathBuf,
    folder: DataFolder,
    server: Server,
    client: Client,
}

impl Scripts {
    fn start(name: &str) -> Self {
        let folder = DataFolder::new();
        let server = folder.start(&Launch::default());
        let client = server.client();
        // The scripts call the tested binary by its name.
        let programs = folder.beside("bin");
        fs::create_dir(&programs).expect("a folder");
        std::os::unix::fs::symlink(binary(), programs.join("tideline")).expect("a link");
        fs::create_dir(folder.beside("files")).expect("a folder");
        Self {
            scripts: workspace().join("docs/examples").join(name),
            folder,
            server,
            client,
        }
    }

    fn files(&self) -> PathBuf {
        self.folder.beside("files")
    }

    /// Runs a script with its arguments. Returns the lines of its output.
    fn run<const N: usize>(&self, script: &str, arguments: [&str; N]) -> Vec<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let ran = Command::new("sh")
            .arg(self.scripts.join(script))
            .args(arguments)
            .current_dir(self.files())
            .env("PATH", format!("{}:{path}", self.folder.beside("bin").display()))
            .env("TIDELINE_SERVER", format!("http://{}", self.client.address()))
            .env("HOME", self.files())
            .output()
            .expect("a shell");
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{script} {arguments:?}: {errors}");
        let output = String::from_utf8_lossy(&ran.stdout);
        output.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Ends the server, and checks that the README of the folder lists each script.
    fn end(self) {
        let readme = fs::read_to_string(self.scripts.join("README.md")).expect("a README");
        for entry in fs::read_dir(&self.scripts).expect("scripts") {
            let name = entry.expect("a file").file_name().to_string_lossy().into_owned();
            assert!(
                name == "README.md" || readme.contains(&format!("| `{name}")),
                "{name}"
            );
        }
        assert!(self.server.terminate().status.success());
    }
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).expect("a file")
}

#[test]
fn the_scripts_of_instant_messaging_keep_devices_in_sync() {
    let scripts = Scripts::start("instant-messaging");
    let (crew, pair) = ("room,name=crew", "pair,of=ann-bea");
    scripts.run("setup.sh", []);
    let first = ["ann", crew, "phone-1", "Train at nine, platform four", "bea"];
    scripts.run("send.sh", first);
    scripts.run("sync.sh", ["bea", "phone"]);
    // The second time, the message is already in the room.
    scripts.run("send.sh", first);
    scripts.run("send.sh", ["ann", pair, "phone-2", "Got the tickets?"]);
    assert_eq!(
        scripts.run("unread.sh", ["bea"]),
        ["ann-bea", "1 unread, 0 mentions", "crew", "1 unread, 1 mentions"]
    );
    scripts.run("read.sh", ["bea", crew]);
    assert_eq!(
        scripts.run("unread.sh", ["bea"]),
        ["ann-bea", "1 unread, 0 mentions", "crew", "0 unread, 0 mentions"]
    );
    // Three devices that are synced at different times have the same messages.
    for device in ["phone", "tablet", "laptop"] {
        scripts.run("sync.sh", ["bea", device]);
        scripts.run("sync.sh", ["bea", device]);
    }
    let files = scripts.files();
    let phone = read(&files, "bea-phone.ndjson");
    assert_eq!(phone.lines().count(), 2, "{phone}");
    for device in ["tablet", "laptop"] {
        assert_eq!(read(&files, &format!("bea-{device}.ndjson")), phone);
    }
    scripts.run("recall.sh", ["ann", pair, "phone-2"]);
    scripts.run("sync.sh", ["bea", "phone"]);
    let phone = read(&files, "bea-phone.ndjson");
    assert!(
        phone
            .lines()
            .last()
            .expect("a line")
            .contains("\"event\":\"recall\""),
        "{phone}"
    );
    // The search index is updated after the writes, so the search is repeated.
    let found = wait::until(Duration::from_secs(20), || {
        let found = scripts.run("search.sh", [crew, "platform"]);
        (!found.is_empty()).then_some(found)
    });
    assert_eq!(found.expect("found in time"), ["Train at nine, platform four"]);
    scripts.end();
}

#[test]
fn the_scripts_of_the_social_feed_show_each_user_the_right_posts() {
    let scripts = Scripts::start("social-feed");
    scripts.run("setup.sh", ["2"]);
    scripts.run("post.sh", ["ann", "First day in Lisbon"]);
    scripts.run("post.sh", ["cem", "New bicycle"]);
    scripts.run("follow.sh", ["bea", "ann"]);
    scripts.run("follow.sh", ["bea", "cem"]);
    // With three followers, one more than the limit, posts of ann are not written to inboxes but read from her feed.
    for user in ["dan", "eva"] {
        scripts.run("follow.sh", [user, "ann"]);
    }
    scripts.run("post.sh", ["ann", "Tram 28"]);
    scripts.run("post.sh", ["ann", "Dinner on Friday", "bea"]);
    let of_ann = ["ann: Dinner on Friday", "ann: Tram 28"];
    assert_eq!(
        scripts.run("home.sh", ["bea"]),
        [
            of_ann[0],
            of_ann[1],
            "cem: New bicycle",
            "ann: First day in Lisbon"
        ]
    );
    assert_eq!(
        scripts.run("home.sh", ["dan"]),
        ["ann: Tram 28", "ann: First day in Lisbon"]
    );
    assert_eq!(
        scripts.run("profile.sh", ["ann", "bea"]),
        ["Dinner on Friday", "Tram 28", "First day in Lisbon"]
    );
    assert_eq!(
        scripts.run("profile.sh", ["ann", "dan"]),
        ["Tram 28", "First day in Lisbon"]
    );
    scripts.run("block.sh", ["bea", "cem"]);
    scripts.run("unfollow.sh", ["bea", "ann"]);
    assert!(scripts.run("home.sh", ["bea"]).is_empty());
    scripts.run("follow.sh", ["bea", "ann"]);
    assert_eq!(
        scripts.run("home.sh", ["bea"]),
        [of_ann[0], of_ann[1], "ann: First day in Lisbon"]
    );
    scripts.end();
}
