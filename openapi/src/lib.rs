//! The words of the HTTP interface: what requests and answers look like, apart from who serves them.
//!
//! Types here are plain data with their JSON form, their rules of form, and their place in the OpenAPI document.
//! They know no engine: `services/http` turns them into engine calls. The document itself is committed as
//! `openapi/openapi.json`; a test of `services/http` fails when it is stale.
//!
//! Rules that hold everywhere: requests refuse members that they do not know, instants are RFC 3339 text or integer
//! nanoseconds, durations are text such as `90s` or `30d`, lists are paged by an opaque token.
//!
//! | module | holds |
//! |---|---|
//! | [`condition`] | [`Condition`] and [`ValueCondition`](condition::ValueCondition): the condition tree in both places |
//! | [`archive`] | how archives stand, and what comes back from them |
//! | [`attach`] | what another database has archived |
//! | [`attribute`] | [`AttributeValue`]: what people add to timelines |
//! | [`geo`] | places and areas |
//! | [`error`] | [`ErrorBody`]: the one body of every failure of our own routes |
//! | [`time`] | [`TimeInput`], [`DurationText`] |
//! | [`table`] | tables and what a user sets about them |
//! | [`policy`] | how the points of a table age |
//! | [`preview`] | what a policy would do |
//! | [`statistics`] | what a table holds, where its load lies, which machines are large |
//! | [`points`] | the answer to a write |
//! | [`query`] | questions about points and their answers |
//! | [`tier`] | the parts of a table by the age of its points |
//! | [`timeline`] | search, description, attributes |
//! | [`watch`] | new points and timelines as events |
//! | [`search`] | saved searches |
//! | [`bulk`] | attributes of many timelines |
//! | [`cardinality`] | how many names there are |
//! | [`name`] | measurements, tags, fields |
//! | [`delete`] | deletes of points and of timelines |
//! | [`job`] | work in the background |
//! | [`clock`] | the time that points age by |
//! | [`operation`] | health and readiness |
//! | [`plain`] | errors of JSON and of parameters in plain words |
//! | [`influx`] | bodies that InfluxDB clients expect |
//! | [`prometheus`] | bodies that Prometheus' clients expect |

pub mod archive;
pub mod attach;
pub mod attribute;
pub mod bulk;
pub mod cardinality;
pub mod clock;
pub mod condition;
pub mod delete;
pub mod error;
pub mod facet;
pub mod geo;
pub mod influx;
pub mod job;
pub mod name;
pub mod operation;
pub mod plain;
pub mod points;
pub mod policy;
pub mod preview;
pub mod prometheus;
pub mod query;
pub mod search;
pub mod statistics;
pub mod table;
pub mod tier;
pub mod time;
pub mod timeline;
pub mod watch;

mod named;
mod present;

pub use attribute::AttributeValue;
pub use condition::{Condition, Scalar};
pub use error::{ErrorBody, ErrorCode};
pub use tideline_model as model;
pub use time::{DurationText, TimeInput};
