//! Messages of a response as JSON.
//!
//! The messages are encoded one after the other into the same memory, and are copied once more, into the response. A
//! separate text for each message would need its own memory, and would be copied and parsed again.

use tideline_engine::WideTable;
use tideline_engine::rows::Mutation;
use tideline_rows::Result;
use tideline_rows::selection::RowEncoder as _;

use crate::message::MessageEncoder;

/// Messages as JSON, in the order of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageList {
    /// The messages, separated by commas.
    json: Vec<u8>,
    count: usize,
}

impl MessageList {
    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true without messages.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the items of the JSON list, separated by commas.
    pub fn items(&self) -> &[u8] {
        &self.json
    }

    /// Returns the JSON list.
    pub fn to_json(&self) -> String {
        format!("[{}]", String::from_utf8_lossy(&self.json))
    }

    /// Adds a message that is encoded already.
    pub fn push_encoded(&mut self, json: &[u8]) {
        self.begin_item();
        self.json.extend_from_slice(json);
    }

    /// Adds a message. Returns its size as JSON, in bytes.
    pub(crate) fn push(
        &mut self,
        table: &WideTable,
        encoder: &MessageEncoder,
        key: &[u8],
        columns: &Mutation<'_>,
    ) -> Result<usize> {
        self.begin_item();
        let start = self.json.len();
        encoder.write_row(table, key, columns, None, &mut self.json)?;
        Ok(self.json.len() - start)
    }

    /// Reserves memory for further messages with this size as JSON, in bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.json.reserve(bytes);
    }

    fn begin_item(&mut self) {
        if self.count > 0 {
            self.json.push(b',');
        }
        self.count += 1;
    }
}
