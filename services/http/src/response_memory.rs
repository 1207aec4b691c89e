//! Memory accounting of responses that are complete before they are sent. Their memory is reserved until the client has
//! received them.
//!
//! Streamed responses are accounted in their queue ([`crate::stream`]).

use axum::body::HttpBody;
use axum::response::{IntoResponse, Response};
use tideline_connections::with_guard;
use tideline_engine::runtime::MemoryAccount;

use crate::failure::Failure;

/// Responses up to this size are not accounted. A response of this size on each of 10,000 connections takes 625 MiB in
/// total. On a machine with 2 GiB, this fits into the 40 % of the memory that the account does not cover.
const FREE_BYTES: u64 = 64 << 10;

/// Reserves the memory of a response of known length over 64 KiB until it is sent. Returns an error response if the memory
/// account has no room.
pub(crate) fn reserve(memory: &MemoryAccount, response: Response) -> Response {
    let Some(bytes) = response
        .body()
        .size_hint()
        .exact()
        .filter(|bytes| *bytes > FREE_BYTES)
    else {
        return response;
    };
    match memory.reserve("answers that are sent whole", bytes) {
        Ok(memory) => response.map(|body| with_guard(body, memory)),
        Err(full) => Failure::from(full).into_response(),
    }
}
