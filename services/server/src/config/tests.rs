//! Tests of precedence, messages, masking and refused values.
//!
//! They also check that the printed reference and configuration can be read back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use tideline_engine::HeadBudget;
use tideline_http::{DeltaTemporality, TranslationStrategy};

use super::keys::KEYS;
use super::*;

const TOKEN: &str = "correct-horse-battery-staple";

fn file(text: &str) -> (TempDir, Sources) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tideline.toml");
    fs::write(&path, text).expect("a file in it");
    let sources = Sources {
        file: Some(path),
        ..Sources::default()
    };
    (folder, sources)
}

fn environment(variables: &[(&str, &str)]) -> Sources {
    Sources {
        environment: variables
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect(),
        ..Sources::default()
    }
}

fn problems(sources: &Sources) -> Vec<String> {
    match Resolved::join(sources) {
        Ok(resolved) => panic!("accepted:\n{}", resolved.describe()),
        Err(ServerError::Config { problems }) => problems.iter().map(Problem::to_string).collect(),
        Err(other) => panic!("another failure: {other}"),
    }
}

#[test]
fn nothing_given_is_the_default_and_every_key_says_so() {
    let resolved = Resolved::join(&Sources::default()).expect("defaults are right");
    assert_eq!(resolved.config.listen.to_string(), "127.0.0.1:8490");
    assert_eq!(resolved.config.data_dir, PathBuf::from("./tideline-data"));
    assert_eq!(
        resolved.config.engine_settings().index_dir,
        PathBuf::from("./tideline-data/index")
    );
    assert_eq!(resolved.describe().matches("# default").count(), KEYS.len());
}

#[test]
fn flags_are_stronger_than_environment_than_file_than_default() {
    let (_folder, mut sources) = file(
        "[server]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"from-file\"\n[storage]\nhead_bytes_max = 33554432\n\
         free_per_mille_min = 7\n",
    );
    sources.environment = environment(&[
        ("TIDELINE__SERVER__LISTEN", "127.0.0.1:2"),
        ("TIDELINE__SERVER__DATA_DIR", "from-environment"),
        ("TIDELINE_CONFIG", "not one of ours"),
        ("PATH", "/bin"),
    ])
    .environment;
    sources.flags = vec![("server.listen", "127.0.0.1:3".to_owned())];
    let resolved = Resolved::join(&sources).expect("all are right");
    assert_eq!(resolved.config.listen.port(), 3);
    assert_eq!(resolved.config.data_dir, PathBuf::from("from-environment"));
    assert_eq!(resolved.config.head_bytes_max, Some(32 << 20));
    assert_eq!(
        resolved.config.engine_settings().store.head,
        HeadBudget::fixed(32 << 20)
    );
    assert_eq!(resolved.config.backend.free_per_mille_min, 7);
    let shown = resolved.describe();
    let origin_of = |name: &str| {
        let line = shown
            .lines()
            .find(|line| line.starts_with(name))
            .expect("the key is shown");
        line.rsplit_once("# ").expect("the origin is shown").1.to_owned()
    };
    assert_eq!(origin_of("listen"), "flag --listen");
    assert_eq!(origin_of("data_dir"), "environment TIDELINE__SERVER__DATA_DIR");
    assert!(
        origin_of("head_bytes_max").ends_with("tideline.toml:5"),
        "{shown}"
    );
    assert_eq!(origin_of("insecure_public"), "default");
}

#[test]
fn unknown_keys_are_refused_with_what_was_meant_and_where() {
    let (_folder, mut sources) = file("[server]\n\nlisen = \"127.0.0.1:1\"\n[storage]\nlisten = 1\n");
    sources.environment = environment(&[
        ("TIDELINE__SERVER__DATADIR", "x"),
        ("TIDELINE__ZEBRA__CROSSING_STRIPES", "x"),
    ])
    .environment;
    let problems = problems(&sources);
    let [typo, section, variable, far] = problems.as_slice() else {
        panic!("not four problems: {problems:#?}");
    };
    assert!(
        typo.ends_with("tideline.toml:3: unknown key server.lisen; did you mean server.listen?"),
        "{typo}"
    );
    assert!(
        section.ends_with("tideline.toml:5: unknown key storage.listen; did you mean server.listen?"),
        "{section}"
    );
    assert_eq!(
        variable,
        "environment TIDELINE__SERVER__DATADIR: unknown key server.datadir; did you mean \
         TIDELINE__SERVER__DATA_DIR?"
    );
    assert!(
        far.ends_with("`tideline config reference` lists all keys"),
        "{far}"
    );
}

#[test]
fn a_broken_file_names_its_line() {
    let (_folder, sources) = file("[server]\nlisten = \n");
    let [problem] = problems(&sources).try_into().expect("one problem");
    assert!(problem.contains("tideline.toml:2: "), "{problem}");

    let (_folder, sources) = file("listen = \"127.0.0.1:1\"\n[server]\ndata_dir = [1]\n");
    let [top_level, list] = problems(&sources).try_into().expect("two problems");
    assert!(
        top_level.ends_with("tideline.toml:1: unknown key listen; did you mean server.listen?"),
        "{top_level}"
    );
    assert!(
        list.contains("tideline.toml:3: server.data_dir: expected a text"),
        "{list}"
    );

    let missing = Sources {
        file: Some(PathBuf::from("/nowhere/tideline.toml")),
        ..Sources::default()
    };
    let [problem] = problems(&missing).try_into().expect("one problem");
    assert!(
        problem.starts_with("cannot read /nowhere/tideline.toml: "),
        "{problem}"
    );
}

#[test]
fn a_list_may_be_a_list_of_texts_in_the_file() {
    let (_folder, sources) = file(
        "[http]\nhosts = [\"db.example\", \"10.0.0.7\"]\ntrusted_proxies = [\"10.0.0.0/8\", \"unix\"]\n[webhooks]\n\
         networks = []\n[otlp]\npromote_resource_attributes = [\"service.version\", \"k8s.pod.name\"]\n[archive]\n\
         allowed_targets = [\"s3://bucket/prefix\"]\n",
    );
    let resolved = Resolved::join(&sources).expect("all are right");
    let http = &resolved.config.http;
    assert_eq!(http.hosts, ["db.example", "10.0.0.7"]);
    assert_eq!(http.trusted_proxies.len(), 2);
    assert_eq!(
        http.otlp.promote_resource_attributes,
        ["service.version", "k8s.pod.name"]
    );
    let shown = resolved.describe();
    assert!(
        shown.contains("allowed_targets = \"s3://bucket/prefix\""),
        "{shown}"
    );

    let (_folder, sources) = file(
        "[otlp]\npromote_resource_attribute = [\"a\"]\npromote_resource_attributes = [1]\n\
         ignore_resource_attributes = [\"a,b\"]\n[http]\nhosts = { a = 1 }\n",
    );
    let problems = problems(&sources);
    for (problem, end) in problems.iter().zip([
        ":2: unknown key otlp.promote_resource_attribute; did you mean otlp.promote_resource_attributes?",
        ":3: otlp.promote_resource_attributes: expected only texts in the list",
        ":4: otlp.ignore_resource_attributes: the entry \"a,b\" of the list contains a comma",
        ":6: http.hosts: expected a list of texts, or one text with commas",
    ]) {
        assert!(problem.ends_with(end), "{problems:#?}");
    }
    assert_eq!(problems.len(), 4, "{problems:#?}");
}

#[test]
fn wrong_values_are_all_reported() {
    let problems = problems(&environment(&[
        ("TIDELINE__SERVER__LISTEN", "localhost"),
        ("TIDELINE__SERVER__DATA_DIR", ""),
        ("TIDELINE__SERVER__INSECURE_PUBLIC", "yes"),
        ("TIDELINE__SERVER__DRAIN_TIMEOUT", "3"),
        ("TIDELINE__LOG__FORMAT", "xml"),
        ("TIDELINE__LOG__LEVEL", "tideline=loud"),
        ("TIDELINE__STORAGE__HEAD_BYTES_MAX", "1KiB"),
        ("TIDELINE__STORAGE__WORKER_THREADS", "0"),
    ]));
    assert_eq!(problems.len(), 8, "{problems:#?}");
    assert!(problems[0].contains("such as 127.0.0.1:8490"));
    assert!(problems[6].ends_with("1KiB is less than 1MiB"));
}

#[test]
fn the_cold_tier_has_its_own_cache_and_folder() {
    let defaults = Resolved::join(&Sources::default()).expect("defaults are right");
    assert_eq!(defaults.config.backend.cold_dir, None);
    assert!(defaults.describe().contains("# cold_dir is not set"));
    let (_folder, mut sources) =
        file("[storage]\ncold_cache_bytes = \"1GiB\"\ncold_dir = \"/mnt/big/tideline\"\n");
    let resolved = Resolved::join(&sources).expect("both are right");
    assert_eq!(resolved.config.backend.cold_cache_bytes, 1 << 30);
    assert_eq!(
        resolved.config.backend.cold_dir,
        Some(PathBuf::from("/mnt/big/tideline"))
    );
    let shown = resolved.describe();
    let line = shown.lines().find(|line| line.starts_with("cold_dir = "));
    let line = line.expect("the key is shown");
    assert!(line.starts_with("cold_dir = \"/mnt/big/tideline\""), "{line}");
    assert!(line.ends_with("tideline.toml:3"), "{line}");

    sources.environment = environment(&[("TIDELINE__STORAGE__COLD_DIR", "")]).environment;
    let unset = Resolved::join(&sources).expect("an empty text unsets it");
    assert_eq!(unset.config.backend.cold_dir, None);
}

#[test]
fn secrets_are_masked_and_may_stand_in_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let token_file = folder.path().join("token");
    fs::write(&token_file, format!("{TOKEN}\n")).expect("a file in it");
    fs::set_permissions(&token_file, fs::Permissions::from_mode(0o600)).expect("a mode");
    let path = token_file.to_str().expect("a path in UTF-8");
    let by_flag = Sources {
        flags: vec![("auth.token_file", path.to_owned())],
        ..Sources::default()
    };
    for sources in [
        environment(&[("TIDELINE__AUTH__TOKEN", TOKEN)]),
        environment(&[("TIDELINE__AUTH__TOKEN_FILE", path)]),
        by_flag,
    ] {
        let resolved = Resolved::join(&sources).expect("a good token");
        assert_eq!(resolved.config.token.as_ref().map(Secret::expose), Some(TOKEN));
        assert!(resolved.config.http_settings().token.is_some());
        let told = format!("{}{resolved:?}", resolved.describe());
        assert!(!told.contains(TOKEN), "{told}");
        assert!(told.contains("token = \"********\""), "{told}");
    }
}

#[test]
fn other_users_must_not_write_the_file_of_the_token() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, data_dir) = (folder.path().join("token"), folder.path().join("data"));
    fs::write(&path, TOKEN).expect("a file in it");
    let text = |path: &std::path::Path| path.to_str().expect("a path in UTF-8").to_owned();
    let mut sources = environment(&[]);
    sources.flags = vec![
        ("server.data_dir", text(&data_dir)),
        ("auth.token_file", text(&path)),
    ];
    let set_mode = |mode: u32| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let warnings = |sources: &Sources| {
        let resolved = Resolved::join(sources).expect("it may start");
        (
            resolved.config.warnings(),
            resolved.config.http_settings().warnings,
        )
    };
    for mode in [0o600, 0o640, 0o400] {
        set_mode(mode);
        assert_eq!(warnings(&sources), (Vec::new(), Vec::new()), "{mode:o}");
    }
    set_mode(0o644);
    let (logged, shown) = warnings(&sources);
    assert!(
        logged.len() == 1 && logged[0].contains("every user") && shown.is_empty(),
        "{logged:?}, {shown:?}"
    );
    for mode in [0o620, 0o602] {
        set_mode(mode);
        let [problem] = problems(&sources).try_into().expect("one problem");
        assert!(
            problem.starts_with("flag --token-file: auth.token_file: ") && problem.contains("can be written"),
            "{problem}"
        );
    }
    // The read of another kind of file, such as a pipe, could wait for ever.
    for other in ["/dev/null", &*text(folder.path())] {
        let mut sources = sources.clone();
        sources.flags.push(("auth.token_file", other.to_owned()));
        let found = problems(&sources);
        assert!(
            found
                .iter()
                .any(|problem| problem.contains("this is not a regular file")),
            "{other}: {found:?}"
        );
    }
    // A stronger layer with the token itself: the file does not matter.
    let mut overridden = sources.clone();
    overridden.flags.push(("auth.token", TOKEN.to_owned()));
    assert_eq!(warnings(&overridden), (Vec::new(), Vec::new()));

    // Simulates the stores of earlier releases: one without rules, and one whose only rule concerns TLS.
    fs::create_dir_all(data_dir.join("store")).expect("a folder");
    set_mode(0o620);
    for mark in [None, Some("rules 1\n")] {
        if let Some(mark) = mark {
            fs::write(data_dir.join("installation"), mark).expect("a mark");
        }
        let (logged, shown) = warnings(&sources);
        assert!(logged[0].contains("next major version"), "{mark:?}: {logged:?}");
        // `/ready` lists it without the path and the mode.
        assert!(
            shown.len() == 1 && shown[0].contains("next major version") && !shown[0].contains(&text(&path)),
            "{mark:?}: {shown:?}"
        );
    }
}

#[test]
fn weak_tokens_are_refused_and_not_repeated() {
    for token in [
        "",
        "short",
        "with spaces in the middle",
        "with-a-line\nfeed-inside-it",
    ] {
        let [problem] = problems(&environment(&[("TIDELINE__AUTH__TOKEN", token)]))
            .try_into()
            .expect("one problem");
        assert!(problem.contains("auth.token: a token "), "{problem}");
        assert!(token.is_empty() || !problem.contains(token), "{problem}");
    }
}

#[test]
fn listening_beyond_this_machine_needs_a_token_or_the_explicit_word() {
    for listen in [
        "0.0.0.0:8490",
        "[::]:8490",
        "10.0.0.1:8490",
        "[::ffff:10.0.0.1]:8490",
    ] {
        let mut sources = environment(&[
            ("TIDELINE__SERVER__LISTEN", listen),
            ("TIDELINE__HTTP__TLS", "proxy"),
        ]);
        let [problem] = problems(&sources).try_into().expect("one problem");
        assert!(problem.contains("no token is set"), "{problem}");

        sources.flags = vec![("server.insecure_public", "true".to_owned())];
        let forced = Resolved::join(&sources).expect("the explicit word");
        let [warning] = forced.config.warnings().try_into().expect("one warning");
        assert!(warning.contains("ANYONE"), "{warning}");

        sources.flags.clear();
        sources
            .environment
            .push(("TIDELINE__AUTH__TOKEN".to_owned(), TOKEN.to_owned()));
        let guarded = Resolved::join(&sources).expect("a token is set");
        assert_eq!(guarded.config.warnings(), [""; 0]);
    }
    for listen in [
        "127.0.0.1:0",
        "127.3.2.1:1",
        "[::1]:8490",
        "[::ffff:127.0.0.1]:8490",
    ] {
        let local = Resolved::join(&environment(&[("TIDELINE__SERVER__LISTEN", listen)]));
        assert!(!local.expect("loopback is safe").config.is_public());
    }
}

#[test]
fn a_new_installation_beyond_this_machine_needs_tls_or_a_reason_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let data_dir = folder.path().join("data");
    let of = |further: &[(&str, &str)]| {
        let mut sources = environment(&[
            ("TIDELINE__SERVER__LISTEN", "10.0.0.1:8490"),
            ("TIDELINE__AUTH__TOKEN", TOKEN),
        ]);
        sources.flags.push((
            "server.data_dir",
            data_dir.to_str().expect("a path in UTF-8").to_owned(),
        ));
        let further = further
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        sources.environment.extend(further);
        sources
    };
    let certificate = [
        ("TIDELINE__HTTP__TLS_CERTIFICATE_FILE", "tideline.crt"),
        ("TIDELINE__HTTP__TLS_KEY_FILE", "tideline.key"),
    ];
    let [problem] = problems(&of(&[])).try_into().expect("one problem");
    for told in [
        "LISTEN",
        "in clear text",
        "http.tls_certificate_file",
        "\"proxy\"",
        "\"off\"",
    ] {
        assert!(problem.contains(told), "{told}: {problem}");
    }
    let warnings = |further: &[(&str, &str)]| {
        let resolved = Resolved::join(&of(further)).expect("it may start");
        (
            resolved.config.warnings(),
            resolved.config.http_settings().warnings,
        )
    };
    let none = (Vec::new(), Vec::new());
    assert_eq!(warnings(&certificate), none);
    assert_eq!(warnings(&[("TIDELINE__HTTP__TLS", "proxy")]), none);
    let (logged, shown) = warnings(&[("TIDELINE__HTTP__TLS", "off")]);
    assert!(logged[0].contains("clear text") && shown.is_empty(), "{logged:?}");
    let both = [certificate[0], certificate[1], ("TIDELINE__HTTP__TLS", "off")];
    let [problem] = problems(&of(&both)).try_into().expect("one problem");
    assert!(problem.contains("remove one of them"), "{problem}");
    let [problem] = problems(&of(&[("TIDELINE__HTTP__TLS", "on")]))
        .try_into()
        .expect("one problem");
    assert!(problem.contains("neither proxy nor off"), "{problem}");

    // Simulates the store of an earlier release.
    fs::create_dir_all(data_dir.join("store")).expect("a folder");
    let (logged, shown) = warnings(&[]);
    assert!(logged[0].contains("next major version"), "{logged:?}");
    assert_eq!(logged, shown, "/ready lists it too");
    assert_eq!(warnings(&certificate), none);
    assert_eq!(warnings(&[("TIDELINE__HTTP__TLS", "proxy")]), none);
}

#[test]
fn the_reference_names_every_key_and_holds_the_defaults() {
    let reference = reference();
    let enabled: String = reference
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') && !rest.starts_with("token") => rest,
            _ => line,
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let (_folder, sources) = file(&enabled);
    let resolved = Resolved::join(&sources).expect("the reference can be read back");
    assert_eq!(
        resolved.describe().matches("tideline.toml:").count(),
        KEYS.len() - 1
    );
    let strip = |text: &str| -> Vec<String> {
        let before = |line: &str| line.split(" # ").next().unwrap_or_default().trim_end().to_owned();
        text.lines().map(before).collect()
    };
    let defaults = Resolved::join(&Sources::default()).expect("defaults are right");
    assert_eq!(strip(&resolved.describe()), strip(&defaults.describe()));
}

#[test]
fn background_work_and_cold_queries_are_set() {
    let resolved = Resolved::join(&environment(&[
        ("TIDELINE__LIFECYCLE__PURGE_DELAY", "0s"),
        ("TIDELINE__LIFECYCLE__INTERVAL", "200ms"),
        ("TIDELINE__QUERY__COLD_THREADS", "3"),
        ("TIDELINE__QUERY__COLD_QUERIES_MAX", ""),
        ("TIDELINE__QUERY__COLD_READ_BYTES_PER_SECOND", "64MiB"),
    ]))
    .expect("all are right");
    let (config, query) = (&resolved.config, &resolved.config.http.query);
    assert_eq!(config.scheduler.purge_delay, Duration::ZERO);
    assert_eq!(
        config.engine_settings().purge_delay,
        Duration::ZERO,
        "both use one delay"
    );
    assert_eq!(config.scheduler.tick_interval, Duration::from_millis(200));
    assert_eq!((query.cold_threads, query.cold_queries_max), (Some(3), None));
    assert_eq!(query.cold_read_bytes_per_second, Some(64 << 20));
    let shown = resolved.describe();
    assert!(
        shown.contains("cold_read_bytes_per_second = \"64MiB\""),
        "{shown}"
    );
    assert!(shown.contains("# cold_queries_max is not set"), "{shown}");
    let wrong = problems(&environment(&[
        ("TIDELINE__QUERY__COLD_QUERIES_MAX", "65"),
        ("TIDELINE__LIFECYCLE__INTERVAL", "1ms"),
    ]));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}

#[test]
fn the_translation_of_otlp_is_set_like_in_prometheus() {
    let resolved = Resolved::join(&environment(&[
        ("TIDELINE__OTLP__TRANSLATION_STRATEGY", "NoTranslation"),
        (
            "TIDELINE__OTLP__PROMOTE_RESOURCE_ATTRIBUTES",
            "service.version, k8s.pod.name",
        ),
        ("TIDELINE__OTLP__DELTA_TEMPORALITY", "store"),
        ("TIDELINE__OTLP__PROMOTE_SCOPE_METADATA", "true"),
    ]))
    .expect("all are right");
    let otlp = &resolved.config.http.otlp;
    assert_eq!(otlp.translation_strategy, TranslationStrategy::NoTranslation);
    assert_eq!(
        otlp.promote_resource_attributes,
        ["service.version", "k8s.pod.name"]
    );
    assert_eq!(otlp.delta_temporality, DeltaTemporality::Store);
    assert!(otlp.promote_scope_metadata && !otlp.convert_histograms_to_nhcb);
    let shown = resolved.describe();
    assert!(
        shown.contains("promote_resource_attributes = \"service.version, k8s.pod.name\"")
            && shown.contains("delta_temporality = \"store\""),
        "{shown}"
    );
    for variables in [
        &[("TIDELINE__OTLP__TRANSLATION_STRATEGY", "None")][..],
        &[("TIDELINE__OTLP__DELTA_TEMPORALITY", "convert")],
        &[("TIDELINE__OTLP__PROMOTE_RESOURCE_ATTRIBUTES", "a, b, a")],
        &[("TIDELINE__OTLP__IGNORE_RESOURCE_ATTRIBUTES", "a")],
        &[
            ("TIDELINE__OTLP__PROMOTE_ALL_RESOURCE_ATTRIBUTES", "true"),
            ("TIDELINE__OTLP__PROMOTE_RESOURCE_ATTRIBUTES", "a"),
        ],
    ] {
        assert_eq!(problems(&environment(variables)).len(), 1, "{variables:?}");
    }
}

#[test]
fn budgets_that_are_not_set_fit_a_small_memory() {
    const MIB: u64 = 1 << 20;
    let of = |variables: &[(&str, &str)]| Resolved::join(&environment(variables)).expect("it fits").config;
    for max in ["64MiB", "307MiB", "1GiB", "16GiB"] {
        let plan = of(&[("TIDELINE__MEMORY__MAX", max)]).memory_plan();
        assert!(plan.account().limit_bytes() >= plan.max_bytes / 8, "{plan:?}");
    }
    let small = of(&[
        ("TIDELINE__MEMORY__MAX", "512MiB"),
        ("TIDELINE__STORAGE__CACHE_BYTES", "40MiB"),
    ]);
    assert_eq!(small.backend.cache_bytes, 40 * MIB, "what is set stays");
    assert_eq!(small.http.bodies_in_flight_bytes_max as u64, 64 * MIB);
    assert_eq!(small.memory_plan().account().whole_bytes(), 512 * MIB);
    let large = of(&[("TIDELINE__MEMORY__MAX", "16GiB")]);
    assert_eq!(large.http.bodies_in_flight_bytes_max as u64, 256 * MIB);
    assert_eq!(large.engine.raw_key_cache_bytes as u64, 256 * MIB);
}

#[test]
fn a_memory_below_what_is_set_aside_is_refused_with_the_numbers() {
    let wrong = problems(&environment(&[
        ("TIDELINE__MEMORY__MAX", "256MiB"),
        ("TIDELINE__STORAGE__HEAD_BYTES_MAX", "200MiB"),
    ]));
    let [wrong] = wrong.as_slice() else {
        panic!("{wrong:?}");
    };
    for part in [
        "TIDELINE__MEMORY__MAX",
        "memory.max of 256MiB",
        "2 × storage.head_bytes_max 400MiB",
    ] {
        assert!(wrong.contains(part), "{part:?} is not in {wrong}");
    }
}

#[test]
fn a_cluster_without_its_engine_is_refused() {
    let flag = |path: &'static str| Sources {
        flags: vec![(path, "node-1".to_owned())],
        ..Sources::default()
    };
    let (_folder, in_file) = file("[cassandra]\ncontact = \"node-1\"\n");
    for (sources, origin) in [
        (flag("cassandra.contact"), "--contact: "),
        (flag("cassandra.keyspace"), "--keyspace: "),
        (
            environment(&[("TIDELINE__CASSANDRA__CONTACT", "node-1")]),
            "environment TIDELINE__CASSANDRA__CONTACT: ",
        ),
        (in_file, "tideline.toml:2: "),
    ] {
        let wrong = problems(&sources).join("\n");
        assert!(
            wrong.contains(origin) && wrong.contains("--backend cassandra"),
            "{wrong}"
        );
    }
    // A section that names no nodes is a preparation.
    let (_folder, prepared) = file("[cassandra]\nkeyspace = \"tideline\"\n");
    Resolved::join(&prepared).expect("no nodes are named");
}

#[cfg(feature = "cassandra")]
#[test]
fn addresses_and_logins_of_a_cluster_are_checked() {
    let with = |name: &str, value: &str| {
        let others = [
            ("TIDELINE__STORAGE__BACKEND", "cassandra"),
            ("TIDELINE__CASSANDRA__CONTACT", "127.0.0.1"),
        ];
        let mut sources = environment(&others);
        sources.environment.push((name.to_owned(), value.to_owned()));
        sources
    };
    for (name, value, reason) in [
        (
            "TIDELINE__CASSANDRA__CONTACT",
            "127.0.0.1:abc",
            "\"127.0.0.1:abc\" is not a host",
        ),
        (
            "TIDELINE__CASSANDRA__CONTACT",
            "node-1,127.0.0.1:0",
            "\"127.0.0.1:0\" is not a host",
        ),
        (
            "TIDELINE__CASSANDRA__ADVERTISE",
            "nohostport",
            "\"nohostport\" is not an address with a port",
        ),
        (
            "TIDELINE__CASSANDRA__ADVERTISE",
            "h:99999",
            "\"h:99999\" is not an address with a port",
        ),
        (
            "TIDELINE__CASSANDRA__ADVERTISE",
            "",
            "cassandra.advertise is empty",
        ),
        (
            "TIDELINE__CASSANDRA__USER",
            "tideline",
            "cassandra.user needs cassandra.password_file",
        ),
        (
            "TIDELINE__CASSANDRA__PASSWORD_FILE",
            "file",
            "cassandra.password_file needs cassandra.user",
        ),
    ] {
        let refused = problems(&with(name, value));
        let [problem] = refused.as_slice() else {
            panic!("not one problem: {refused:#?}");
        };
        assert!(
            problem.starts_with(&format!("environment {name}: ")) && problem.contains(reason),
            "{problem}"
        );
    }
    let resolved = Resolved::join(&with(
        "TIDELINE__CASSANDRA__CONTACT",
        "node-1, ::1,[fd00::1]:9142",
    ));
    let config = resolved.expect("names and addresses are accepted").config;
    assert_eq!(config.cluster.contact, ["node-1", "[::1]:9042", "[fd00::1]:9142"]);
    let resolved = Resolved::join(&with("TIDELINE__CASSANDRA__ADVERTISE", "[fd00::1]:8490"));
    let config = resolved.expect("an address with a port is accepted").config;
    assert_eq!(config.advertised(config.listen), "[fd00::1]:8490");
}

#[cfg(feature = "cassandra")]
#[test]
fn a_server_of_a_cluster_advertises_an_address_that_other_machines_reach() {
    let resolved = |contact: &str, more: &[(&str, &str)]| {
        let mut variables = vec![
            ("TIDELINE__STORAGE__BACKEND", "cassandra"),
            ("TIDELINE__CASSANDRA__CONTACT", contact),
        ];
        variables.extend_from_slice(more);
        Resolved::join(&environment(&variables)).expect("it is valid for other commands")
    };
    for own in [
        "localhost",
        "127.0.0.2:9042",
        "::1",
        "[::1]:9042",
        "localhost:9042",
    ] {
        resolved(own, &[])
            .check_server()
            .expect("the nodes are on this machine");
    }
    for other in ["node-1:9042", "10.0.0.1", "localhost, node-1"] {
        let refused = resolved(other, &[]).check_server();
        let refused = refused
            .expect_err("other processes cannot reach 127.0.0.1")
            .to_string();
        assert!(
            refused.contains("cassandra.advertise") && refused.contains("127.0.0.1:8490"),
            "{refused}"
        );
    }
    let has_it = |warnings: &[String]| warnings.iter().any(|text| text.contains("cassandra.advertise"));
    let warns = |resolved: &Resolved| {
        let (log, ready) = (
            resolved.config.warnings(),
            resolved.config.http_settings().warnings,
        );
        (has_it(&log), has_it(&ready))
    };
    for (advertise, is_warned) in [("db-1:8490", false), ("127.0.0.1:8490", true)] {
        let set = resolved("node-1", &[("TIDELINE__CASSANDRA__ADVERTISE", advertise)]);
        set.check_server().expect("an address is set");
        assert_eq!(warns(&set), (is_warned, is_warned), "{advertise}");
    }
}

#[test]
fn the_shown_configuration_can_be_read_back() {
    let shown = Resolved::join(&environment(&[(
        "TIDELINE__SERVER__DATA_DIR",
        "a \"quoted\" \\ name",
    )]))
    .expect("any name will do")
    .describe();
    let (_folder, sources) = file(&shown);
    let again = Resolved::join(&sources).expect("what is shown is a file");
    assert_eq!(again.config.data_dir, PathBuf::from("a \"quoted\" \\ name"));
}

#[test]
fn keys_of_a_section_stand_together_and_have_one_place() {
    let mut sections: Vec<&str> = KEYS.iter().map(|key| key.section()).collect();
    sections.dedup();
    let mut paths: Vec<&str> = KEYS.iter().map(|key| key.path).collect();
    paths.sort_unstable();
    paths.dedup();
    let runs = sections.len();
    sections.sort_unstable();
    sections.dedup();
    assert_eq!(sections.len(), runs, "a section in two places");
    assert_eq!(paths.len(), KEYS.len());
}
