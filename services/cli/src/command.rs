//! Client commands, as a flattened subcommand of a binary's command line.
//!
//! A private enum holds the commands, so that their argument types stay private to this crate.

use clap::{ArgMatches, FromArgMatches, Subcommand};

use crate::commands::attributes::AttributesCommand;
use crate::commands::audit::AuditCommand;
use crate::commands::changes::ChangesCommand;
use crate::commands::delete::DeleteArguments;
use crate::commands::explain::ExplainArguments;
use crate::commands::export::ExportArguments;
use crate::commands::facets::FacetsArguments;
use crate::commands::feed::FeedCommand;
use crate::commands::find::FindArguments;
use crate::commands::jobs::JobsCommand;
use crate::commands::latest::LatestArguments;
use crate::commands::names::{FieldsArguments, TagsArguments};
use crate::commands::promql::PromqlArguments;
use crate::commands::queries::QueriesCommand;
use crate::commands::query::QueryArguments;
use crate::commands::ready::ReadyArguments;
use crate::commands::rows::RowsCommand;
use crate::commands::searches::SearchesCommand;
use crate::commands::sql::SqlArguments;
use crate::commands::tables::TablesCommand;
use crate::commands::tenant::TenantCommand;
use crate::commands::token::TokenCommand;
use crate::commands::top::TopArguments;
use crate::commands::watch::WatchArguments;
use crate::commands::{
    attributes, audit, changes, delete, explain, export, facets, feed, find, jobs, latest, names, promql,
    queries, query, ready, rows, searches, sql, tables, tenant, token, top, watch,
};
use crate::error::{CliError, Result};
use crate::write::{self, WriteArguments};

/// Command that uses a running server over HTTP. A binary adds it as a flattened subcommand to its own
/// commands.
#[derive(Debug)]
pub struct ClientCommand(Box<Command>);

// All client commands. This is not a doc comment, because clap would use a doc comment as the description of the
// binary.
#[derive(Debug, Subcommand)]
enum Command {
    /// Write files, folders or standard input to a running server.
    Write(WriteArguments),
    /// Read points or compute aggregates: tables, charts, CSV, JSON.
    Query(QueryArguments),
    /// Show the plan and the estimated reads of a query, without running it.
    Explain(ExplainArguments),
    /// Evaluate a PromQL query, at one time or over a range.
    Promql(PromqlArguments),
    /// Run SQL statements on wide tables, or start a prompt.
    Sql(SqlArguments),
    /// List or cancel running queries.
    #[command(subcommand)]
    Queries(QueriesCommand),
    /// Find timelines by conditions.
    Find(FindArguments),
    /// Count timelines by the values of tags, attributes or measurements.
    Facets(FacetsArguments),
    /// Show, set and remove attributes of timelines.
    #[command(subcommand)]
    Attributes(AttributesCommand),
    /// List, save, run and delete saved searches.
    #[command(subcommand)]
    Searches(SearchesCommand),
    /// List tag keys, or the values of one key.
    Tags(TagsArguments),
    /// List fields with their types.
    Fields(FieldsArguments),
    /// Show the newest value of each field.
    Latest(LatestArguments),
    /// List, create, show, alter and drop tables.
    #[command(subcommand)]
    Tables(TablesCommand),
    /// Read, write, export and import rows of wide tables.
    #[command(subcommand)]
    Rows(RowsCommand),
    /// Send, read, change and search messages of feed tables; manage feeds.
    #[command(subcommand)]
    Feed(FeedCommand),
    /// Manage change streams and their consumer groups; read their records.
    #[command(subcommand)]
    Changes(ChangesCommand),
    /// List, watch and control background jobs.
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// List audit records, and set for how long they are kept.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Create, change, list and remove tenants.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Create, list, rotate and revoke tokens; show what a token may do.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Delete points by selection and range.
    Delete(DeleteArguments),
    /// Export points to a file that `write` can read.
    Export(ExportArguments),
    /// Follow new points and timelines as they are acknowledged.
    Watch(WatchArguments),
    /// Check whether a running server is ready.
    Ready(ReadyArguments),
    /// Show live statistics of a running server: rates, routes, tiers, jobs.
    Top(TopArguments),
}

impl ClientCommand {
    /// Runs the command and prints its result.
    ///
    /// # Errors
    ///
    /// Returns a [`CliError`](crate::CliError) if the arguments are invalid, the server cannot be reached or
    /// refuses the request, or a file or the output fails.
    pub fn run(&self) -> Result<()> {
        match &*self.0 {
            Command::Write(arguments) => write::run(arguments),
            Command::Query(arguments) => query::run(arguments),
            Command::Explain(arguments) => explain::run(arguments),
            Command::Promql(arguments) => promql::run(arguments),
            Command::Sql(arguments) => sql::run(arguments),
            Command::Queries(command) => queries::run(command),
            Command::Find(arguments) => find::run(arguments),
            Command::Facets(arguments) => facets::run(arguments),
            Command::Attributes(command) => attributes::run(command),
            Command::Searches(command) => searches::run(command),
            Command::Tags(arguments) => names::tags(arguments),
            Command::Fields(arguments) => names::fields(arguments),
            Command::Latest(arguments) => latest::run(arguments),
            Command::Tables(command) => tables::run(command),
            Command::Rows(command) => rows::run(command).map_err(CliError::of_rows),
            Command::Feed(command) => feed::run(command),
            Command::Changes(command) => changes::run(command),
            Command::Jobs(command) => jobs::run(command),
            Command::Audit(command) => audit::run(command),
            Command::Tenant(command) => tenant::run(command),
            Command::Token(command) => token::run(command),
            Command::Delete(arguments) => delete::run(arguments),
            Command::Export(arguments) => export::run(arguments),
            Command::Watch(arguments) => watch::run(arguments),
            Command::Ready(arguments) => ready::run(arguments),
            Command::Top(arguments) => top::run(arguments),
        }
    }
}

impl FromArgMatches for ClientCommand {
    fn from_arg_matches(matches: &ArgMatches) -> clap::error::Result<Self> {
        Box::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> clap::error::Result<()> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Subcommand for ClientCommand {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        Command::augment_subcommands(command)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Command::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Command::has_subcommand(name)
    }
}
