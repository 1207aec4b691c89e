//! `tideline tls`: makes a certificate for trials and internal networks.
//!
//! No authority has issued the certificate. Clients are given the certificate itself as a trusted authority. The
//! certificate cannot sign other certificates.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use tideline_cli::{CliError, output};
use tideline_engine::model::{Clock as _, SystemClock};
use time::{Duration, OffsetDateTime};

use crate::failure::Result;

/// Subcommands of `tls`.
#[derive(Debug, Subcommand)]
pub(crate) enum TlsCommand {
    /// Make a self-signed certificate and its private key.
    #[command(after_help = "\
Writes tideline.crt and tideline.key to the folder. Clients trust the certificate if they are given
tideline.crt as that of an authority: --ca of this command line, --cacert of curl, tls_config.ca_file of
Prometheus. Existing files are not replaced.

Examples:
  tideline tls self-signed --name db.internal --name 10.1.2.3 --out /etc/tideline
  tideline tls self-signed --out . && TIDELINE__HTTP__TLS_CERTIFICATE_FILE=tideline.crt \\
    TIDELINE__HTTP__TLS_KEY_FILE=tideline.key tideline serve")]
    SelfSigned(SelfSignedArguments),
}

/// Arguments of `tls self-signed`.
#[derive(Debug, Args)]
pub(crate) struct SelfSignedArguments {
    /// Host name or address under which clients reach the server; repeat it for several [default: localhost, 127.0.0.1, ::1]
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
    /// Days until the certificate expires
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3_650))]
    days: u16,
    /// Folder for both files
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
    /// Other folder for the private key
    #[arg(long, value_name = "FOLDER")]
    key_out: Option<PathBuf>,
    /// Do nothing if both files exist; a key without a certificate is replaced
    #[arg(long)]
    if_missing: bool,
}

pub(crate) fn run(command: &TlsCommand) -> Result<()> {
    match command {
        TlsCommand::SelfSigned(arguments) => self_signed(arguments),
    }
}

fn self_signed(arguments: &SelfSignedArguments) -> Result<()> {
    let key_out = arguments.key_out.as_ref().unwrap_or(&arguments.out);
    let (key_file, certificate_file) = (key_out.join("tideline.key"), arguments.out.join("tideline.crt"));
    if arguments.if_missing && key_file.exists() && certificate_file.exists() {
        output::print(&format!("{} exists", certificate_file.display()))?;
        return Ok(());
    }
    if arguments.if_missing && !certificate_file.exists() && key_file.exists() {
        // An earlier run was interrupted between the two files.
        fs::remove_file(&key_file).map_err(|error| CliError::file(&key_file, error))?;
    }
    let names = match arguments.names.as_slice() {
        [] => ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
        names => names.to_vec(),
    };
    if let Some(name) = names.iter().find(|name| !is_host(name)) {
        return Err(CliError::usage(format!(
            "--name: {name:?} is neither a host name of ASCII letters, digits, dots and dashes nor an IP address"
        ))
        .into());
    }
    let refused = |error: rcgen::Error| CliError::usage(format!("--name: {error}"));
    let mut params = CertificateParams::new(names.clone()).map_err(refused)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "Tideline, self-signed");
    let seconds = SystemClock.now().nanos() / 1_000_000_000;
    let now = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    // The clock of a client may be slow.
    params.not_before = now - Duration::HOUR;
    params.not_after = now + Duration::days(arguments.days.into());
    let key = KeyPair::generate().map_err(refused)?;
    let certificate = params.self_signed(&key).map_err(refused)?;
    for folder in [&arguments.out, key_out] {
        fs::create_dir_all(folder).map_err(|error| CliError::file(folder, error))?;
    }
    create(&key_file, 0o600, &key.serialize_pem())?;
    if let Err(error) = create(&certificate_file, 0o644, &certificate.pem()) {
        // A key without a certificate is of no use, and would prevent the next run.
        let _ = fs::remove_file(&key_file);
        return Err(error.into());
    }
    output::print(&format!(
        "{} for {}, valid for {} days\n{}, its private key",
        certificate_file.display(),
        names.join(", "),
        arguments.days,
        key_file.display()
    ))?;
    Ok(())
}

/// Returns true if clients can use a text as the host of a URL: an IP address, or a host name, which can begin with `*.`.
fn is_host(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(is_allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = text.strip_prefix("*.").unwrap_or(text);
    // Clients take a name that ends with a number for an IPv4 address.
    let is_numeric = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = text.len() <= 253 && name.split('.').all(is_label);
    let is_address_like = name.rsplit('.').next().is_some_and(is_numeric);
    is_name && !is_address_like || text.parse::<IpAddr>().is_ok()
}

/// Creates a file with this mode. An existing file is not replaced.
fn create(path: &Path, mode: u32, text: &str) -> std::result::Result<(), CliError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| CliError::file(path, error))
}
