//! Values of any size: responses of `/v1/tables/{table}/blobs`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Written value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "type": "binary", "bytes": 104_857_600, "checksum": "5bd1e995c2b2ae35", "large": true,
    "position": "4711", "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct BlobWritten {
    /// Type of the value: `string` or `binary`.
    #[serde(rename = "type")]
    pub column_type: String,
    /// Size in bytes.
    pub bytes: u64,
    /// xxh3 (64 bits) of the content, as 16 hexadecimal digits. Reads return it as `ETag`.
    pub checksum: String,
    /// True if the value is stored in pieces, outside of its row.
    pub large: bool,
    /// Position of the write in the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Id of the request, also in the header `X-Request-Id` and in the log.
    pub request_id: String,
}
