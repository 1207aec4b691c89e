//! Tests of `tideline feed` and of feed tables on the command line: messages, lines of messages, pages, changes, search,
//! feeds, completions.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::lab::{Lab, Pretender};
use crate::process::{output, text};

/// Feed of most tests.
const LOBBY: &str = "room,name=lobby";

/// Creates the table of most tests.
fn create(lab: &Lab) {
    create_with(
        lab,
        &["--model", "feed", "--parts", "month", "--hot-parts", "30d"],
    );
}

/// Creates a table with these options and a column for texts.
fn create_with(lab: &Lab, options: &[&str]) {
    lab.ok(&[&["tables", "create", "chat", "--column", "text string"], options].concat());
}

fn feed(lab: &Lab, command: &str, rest: &[&str]) -> String {
    lab.ok(&[&["feed", command, "chat"], rest].concat())
}

/// Sends a message and returns its sequence number.
fn send(lab: &Lab, feed_name: &str, rest: &[&str]) -> String {
    feed(lab, "send", &[&[feed_name], rest].concat())
        .trim_end()
        .to_owned()
}

/// Writes `count` lines of messages to a file. Returns the arguments that send the file to the lobby.
fn send_file(lab: &Lab, count: usize) -> [String; 9] {
    let all: String = (0..count)
        .map(|number| format!("{{\"sender\":\"bot\",\"columns\":{{\"text\":\"line {number}\"}}}}\n"))
        .collect();
    let file = lab.file("history.ndjson", &all);
    [
        "feed", "send", "chat", LOBBY, "--file", &file, "--ids", "history", "--json",
    ]
    .map(str::to_owned)
}

/// Runs a command with the option `--json`. Returns its output.
fn summary(lab: &Lab, command: &[String]) -> Value {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    serde_json::from_str(&lab.ok(&command)).expect("JSON")
}

/// Returns the lines of a read, parsed: its messages, and its summary.
fn lines(text: &str) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let end = lines.pop().expect("a summary");
    (lines, end)
}

fn texts(messages: &[Value]) -> Vec<&str> {
    let texts = messages.iter().map(|message| message["columns"]["text"].as_str());
    texts.map(Option::unwrap_or_default).collect()
}

#[test]
fn messages_are_sent_read_and_changed() {
    let lab = Lab::start();
    create(&lab);
    let shown = lab.ok(&["tables", "show", "chat"]);
    assert!(
        shown.contains("generated") && shown.contains("text string"),
        "{shown}"
    );

    let first = send(&lab, LOBBY, &["text=5", "n=1.50", "--id", "m1", "--as", "ann"]);
    let again = lab.run(&["feed", "send", "chat", LOBBY, "text=5", "--id", "m1"]);
    assert_eq!(again.out.trim_end(), first, "{again:?}");
    assert!(again.err.contains("nothing was written"), "{again:?}");
    let second = send(&lab, LOBBY, &["text=two", "--sender", "bea"]);

    let (messages, end) = lines(&feed(&lab, "read", &[LOBBY]));
    assert_eq!(end, json!({"next": second, "more": false}));
    // `text` is a declared string, `n` is undeclared.
    assert_eq!(messages[0]["columns"], json!({"text": "5", "n": 1.5}));
    assert_eq!(messages[0]["sender"], "ann");
    let (messages, end) = lines(&feed(&lab, "read", &[LOBBY, "--descending", "--limit", "1"]));
    assert_eq!(texts(&messages), ["two"]);
    assert_eq!(end, json!({"next": second, "more": true}));

    let edited = feed(
        &lab,
        "edit",
        &[LOBBY, &first, "text=one", "--clear", "n", "--as", "ann"],
    );
    assert!(edited.starts_with("edited; the event is "), "{edited}");
    let counters = feed(&lab, "react", &[LOBBY, &first, "like", "seen=3"]);
    assert_eq!(counters, "like=1 seen=3\n");
    let table = feed(&lab, "read", &[LOBBY, "--output", "table"]);
    assert!(
        table.contains("like=1 seen=3") && table.contains(&format!("edit of {first}")),
        "{table}"
    );
    let (messages, _) = lines(&feed(&lab, "read", &[LOBBY, "--after", &second]));
    assert_eq!(messages[0]["event"], "edit");
    assert_eq!(feed(&lab, "count", &[LOBBY]), "2\n");
    assert_eq!(feed(&lab, "count", &[LOBBY, "--after", &first]), "1\n");
    assert!(feed(&lab, "recall", &[LOBBY, &first]).starts_with("recalled; "));
    assert_eq!(feed(&lab, "recall", &[LOBBY, &first]), "was recalled before\n");
    let failed = lab.run(&["feed", "edit", "chat", LOBBY, &first, "text=x"]);
    assert!(failed.code == 1 && failed.err.contains("409"), "{failed:?}");
    assert!(feed(&lab, "delete", &[LOBBY, &second, "--as", "bea"]).starts_with("deleted; "));
    let (messages, _) = lines(&feed(&lab, "read", &[LOBBY, "--no-events"]));
    assert_eq!(messages.len(), 1, "{messages:?}");

    let page: Value =
        serde_json::from_str(&feed(&lab, "read", &[LOBBY, "--json", "--limit", "1"])).expect("JSON");
    assert!(page["more"] == true && page["request_id"].is_string(), "{page}");
    let wrong = lab.run(&["feed", "read", "chat", "room,name=cellar"]);
    assert!(wrong.code == 1 && wrong.err.contains("404"), "{wrong:?}");
    let wrong = lab.run(&["feed", "send", "default", LOBBY, "text=x"]);
    assert!(wrong.code == 2 && wrong.err.contains("series"), "{wrong:?}");
}

#[test]
fn lines_of_messages_are_sent_once() {
    let lab = Lab::start();
    create(&lab);
    let send = send_file(&lab, 2_500);
    let first = summary(&lab, &send);
    assert_eq!(
        (&first["written"], &first["repeated"], &first["requests"]),
        (&json!(2_500), &json!(0), &json!(3)),
        "{first}"
    );
    let again = summary(&lab, &send);
    assert_eq!(
        (&again["written"], &again["repeated"]),
        (&json!(0), &json!(2_500))
    );

    let (messages, end) = lines(&feed(&lab, "read", &[LOBBY]));
    assert_eq!((messages.len(), &end["more"]), (2_500, &json!(false)));
    assert_eq!(messages[2_499]["columns"]["text"], "line 2499");
    assert_eq!(messages[2_499]["id"], "history-2500");
    let (messages, end) = lines(&feed(&lab, "read", &[LOBBY, "--limit", "1500", "--descending"]));
    assert_eq!((messages.len(), &end["more"]), (1_500, &json!(true)));

    let more = lab.feed(
        &["feed", "send", "chat", LOBBY, "--file", "-"],
        b"{\"columns\":{\"text\":\"last\"}}\n{\"columns\":\n",
    );
    assert!(more.code == 1 && more.err.contains("-:2: "), "{more:?}");
    let refused = lab.feed(
        &["feed", "send", "chat", LOBBY, "--file", "-"],
        b"{\"columns\":{\"sender\":\"x\"}}\n",
    );
    assert!(
        refused.code == 1
            && refused.err.contains("from line 1 on failed")
            && refused.err.contains("messages/0"),
        "{refused:?}"
    );
}

/// Each message has an entry in the inbox of each member, and the entries of a request are limited.
#[test]
fn requests_with_too_many_entries_of_inboxes_are_divided() {
    let lab = Lab::start();
    create_with(&lab, &["--model", "feed", "--inboxes", "100"]);
    for number in 0..40 {
        lab.ok(&["feed", "join", "chat", LOBBY, &format!("user-{number}")]);
    }
    let sent = summary(&lab, &send_file(&lab, 1_000));
    assert_eq!(
        (&sent["written"], &sent["repeated"]),
        (&json!(1_000), &json!(0)),
        "{sent}"
    );
    assert!(sent["requests"].as_u64() > Some(1), "{sent}");
    let (messages, _) = lines(&feed(&lab, "read", &[LOBBY]));
    assert_eq!(messages[999]["columns"]["text"], "line 999");
}

#[test]
fn only_messages_with_ids_are_sent_again() {
    let respond = |number: usize, _: &crate::lab::Request| match number {
        0 => (
            503,
            "Retry-After: 0\r\n",
            json!({"code": "unavailable", "message": "later", "retryable": true}).to_string(),
        ),
        _ => (
            200,
            "",
            json!({"feed": "f", "messages": [{"sequence": "1"}], "request_id": "r"}).to_string(),
        ),
    };
    let lab = Lab::start();
    for (line, requests) in [("{\"id\":\"a\"}\n", 2), ("{}\n", 1)] {
        let server = Pretender::start(respond);
        let sent = lab.feed(
            &[
                "feed",
                "send",
                "chat",
                LOBBY,
                "--file",
                "-",
                "--server",
                &server.url,
            ],
            line.as_bytes(),
        );
        assert_eq!(sent.code == 0, requests == 2, "{sent:?}");
        assert_eq!(server.requests().len(), requests, "{line}");
    }
}

#[test]
fn feeds_are_merged_found_and_dropped() {
    let lab = Lab::start();
    create(&lab);
    send(&lab, LOBBY, &["text=a"]);
    send(&lab, "room,name=garden", &["text=b"]);
    send(&lab, LOBBY, &["text=c"]);
    let merge = ["room,name=garden", LOBBY];
    let (messages, end) = lines(&feed(&lab, "merge", &merge));
    assert_eq!(
        (texts(&messages), end),
        (vec!["a", "b", "c"], json!({"next": null}))
    );
    let (messages, end) = lines(&feed(
        &lab,
        "merge",
        &[&merge[..], &["--descending", "--limit", "2"]].concat(),
    ));
    assert_eq!(texts(&messages), ["c", "b"]);
    let next = end["next"].as_str().expect("a token");
    let (messages, _) = lines(&feed(
        &lab,
        "merge",
        &[&merge[..], &["--descending", "--page", next]].concat(),
    ));
    assert_eq!(texts(&messages), ["a"]);

    let put = feed(
        &lab,
        "put",
        &["room,name=big\\ hall", "title=Hall", "members_max=50"],
    );
    assert!(
        put.contains("@members_max") && put.contains("room,name=big\\ hall"),
        "{put}"
    );
    let put = feed(&lab, "put", &["room,name=big\\ hall", "--remove", "title"]);
    assert!(!put.contains("@title"), "{put}");
    let found = feed(&lab, "find", &["@members_max=50"]);
    assert!(
        found.contains("room,name=big\\ hall") && found.ends_with("1 of 1\n"),
        "{found}"
    );
    let found = feed(&lab, "list", &["--sort", "name", "--desc"]);
    let names: Vec<&str> = found.lines().skip(2).take(3).collect();
    assert!(
        names[0].starts_with(LOBBY) && names[2].starts_with("room,name=big"),
        "{found}"
    );

    let refused = lab.run(&["feed", "drop", "chat", LOBBY]);
    assert!(
        refused.code == 2 && refused.err.contains("with 2 messages"),
        "{refused:?}"
    );
    assert_eq!(
        feed(&lab, "drop", &[LOBBY, "--yes"]),
        format!("deleted feed {LOBBY}\n")
    );
    assert_eq!(lab.run(&["feed", "show", "chat", LOBBY]).code, 1);
    assert!(feed(&lab, "show", &["room,name=garden"]).contains("newest"));
}

#[test]
fn messages_are_searched_by_words_and_conditions() {
    let lab = Lab::start();
    create(&lab);
    let none = lab.run(&["feed", "search", "chat", "lunch"]);
    assert!(none.code == 2 && none.err.contains("no search index"), "{none:?}");
    lab.ok(&[
        "rows",
        "search-index",
        "create",
        "chat",
        "messages",
        "feed=keyword",
        "sender=keyword",
        "text=text",
        "--wait",
    ]);
    send(&lab, LOBBY, &["text=Lunch at noon?", "--as", "ann"]);
    let sent = feed(
        &lab,
        "send",
        &["room,name=garden", "text=No lunch today", "--as", "bea", "--json"],
    );
    let sent: Value = serde_json::from_str(&sent).expect("JSON");
    let position = sent["position"].as_str().expect("a position");
    let (messages, end) = lines(&feed(
        &lab,
        "search",
        &["lunch", "noon", "--highlight", "--at-least", position],
    ));
    assert_eq!(texts(&messages), ["Lunch at noon?"]);
    assert_eq!(end["total"], 1);
    assert_eq!(
        messages[0]["highlights"][0]["spans"][0],
        json!({"start": 0, "end": 5})
    );
    let (messages, _) = lines(&feed(&lab, "search", &["lunch", "sender=bea"]));
    assert_eq!(texts(&messages), ["No lunch today"]);
    let (messages, _) = lines(&feed(&lab, "search", &["lunch", "--feed", LOBBY]));
    assert_eq!(texts(&messages), ["Lunch at noon?"]);
    let table = lab.run(&[
        "feed",
        "search",
        "chat",
        "lunch",
        "--output",
        "table",
        "--highlight",
    ]);
    assert!(
        table.out.contains("text: [Lunch] at noon?") && table.err.contains("2 of 2"),
        "{table:?}"
    );
}

#[test]
fn feed_tables_are_created_with_their_settings() {
    let lab = Lab::start();
    lab.ok(&[
        "tables",
        "create",
        "notes",
        "--sequence",
        "manual",
        "--ttl",
        "30d",
    ]);
    let table: Value = serde_json::from_str(&lab.ok(&["tables", "show", "notes", "--json"])).expect("JSON");
    assert_eq!(
        (&table["model"], &table["feed"]["sequence"], &table["wide"]["ttl"]),
        (&json!("feed"), &json!("manual"), &json!("30d"))
    );
    lab.ok(&["feed", "send", "notes", "log,host=a", "text=x", "--sequence", "7"]);
    let edited = lab.ok(&[
        "feed",
        "edit",
        "notes",
        "log,host=a",
        "7",
        "text=y",
        "--event",
        "8",
    ]);
    assert_eq!(edited, "edited; the event is 8\n");
    for (wrong, text) in [
        (&["--model", "feed", "--key", "a string"][..], "--key applies"),
        (
            &["--model", "wide", "--sequence", "manual"],
            "--sequence and --inboxes apply",
        ),
    ] {
        let refused = lab.run(&[&["tables", "create", "other"], wrong].concat());
        assert!(refused.code == 2 && refused.err.contains(text), "{refused:?}");
    }
}

#[test]
fn feeds_are_completed() {
    let lab = Lab::start();
    create(&lab);
    feed(&lab, "put", &[LOBBY]);
    feed(&lab, "put", &["room,name=loft"]);
    feed(&lab, "put", &["inbox,user=ann"]);
    let mut complete = Command::new(env!("CARGO_BIN_EXE_tideline"));
    complete
        .args(["complete", "--line", "tideline feed read chat room,name=lo"])
        .env("TIDELINE_SERVER", &lab.url)
        .stdin(Stdio::null());
    let offered = output(complete);
    assert_eq!(
        text(&offered.stdout),
        "room,name=lobby\nroom,name=loft\n",
        "{offered:?}"
    );
}

#[test]
fn members_read_inboxes_and_conversations() {
    let lab = Lab::start();
    create_with(&lab, &["--inboxes", "1"]);
    let shown = lab.ok(&["tables", "show", "chat"]);
    assert!(shown.contains("inboxes"), "{shown}");
    let joined = feed(&lab, "join", &[LOBBY, "ann"]);
    assert_eq!(joined, format!("ann is a member of {LOBBY}\n"));
    let pushed = send(&lab, LOBBY, &["text=pushed", "--as", "bea", "--mentions", "ann"]);
    feed(&lab, "join", &[LOBBY, "bea", "--history", "all"]);
    let pulled = send(&lab, LOBBY, &["text=pulled", "--as", "bea"]);
    send(&lab, LOBBY, &["text=hidden", "--to", "bea"]);

    let (messages, end) = lines(&feed(&lab, "inbox", &["ann"]));
    assert_eq!(texts(&messages), ["pushed", "pulled"]);
    assert_eq!(end["more"], false);
    let (messages, _) = lines(&feed(&lab, "inbox", &["ann", "--after", &pushed]));
    assert_eq!(texts(&messages), ["pulled"]);
    let conversations = feed(&lab, "conversations", &["ann"]);
    assert!(
        conversations.contains("2 unread in 1 conversations"),
        "{conversations}"
    );
    let cursor = feed(&lab, "cursor", &["ann", LOBBY, &pulled]);
    assert_eq!(cursor.trim_end(), pulled);
    assert_eq!(feed(&lab, "cursor", &["ann", LOBBY, &pushed]).trim_end(), pulled);
    let conversations = feed(&lab, "conversations", &["ann"]);
    assert!(
        conversations.contains("0 unread in 1 conversations"),
        "{conversations}"
    );

    feed(&lab, "mute", &[LOBBY, "bea"]);
    let members = feed(&lab, "members", &[LOBBY]);
    assert!(members.contains("ann") && members.contains("true"), "{members}");
    feed(&lab, "leave", &[LOBBY, "bea"]);
    let members = feed(&lab, "members", &[LOBBY]);
    assert!(members.contains("ann") && !members.contains("bea"), "{members}");
    let refused = lab.run(&["feed", "cursor", "chat", "bea", LOBBY, &pushed]);
    assert!(refused.err.contains("is not a member"), "{refused:?}");
}
