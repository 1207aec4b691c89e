//! JSON of responses. The crate writes it itself, because a serializer is slower; it must be the same as that of the API
//! types.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::value::RawValue;
use tideline_engine::Timeline;
use tideline_engine::model::{TimelineId, Timestamp};
use tideline_message_feed::inbox::{self, Conversations};
use tideline_message_feed::members::Membership;
use tideline_message_feed::send::{Sent, SentMessage};
use tideline_openapi::feed::{Conversation, MessageSent, Sequence};

fn conversation() -> impl Strategy<Value = inbox::Conversation> {
    let texts = (
        ".{0,6}",
        btree_map("[a-c\"\\\\é]{1,3}", ".{0,4}", 0..3),
        option::of(".{0,8}"),
    );
    let numbers = (
        any::<[u8; 16]>(),
        any::<u64>(),
        any::<u64>(),
        option::of(any::<i64>()),
        any::<bool>(),
    );
    (texts, numbers).prop_map(
        |((measurement, tags, last), (id, unread, mentions, cursor, is_muted))| inbox::Conversation {
            member: Membership {
                user: "ann".to_owned(),
                feed: TimelineId(id),
                joined: 1,
                visible_from: 1,
                cursor,
                is_muted,
                is_filling: false,
                filled: None,
            },
            feed: Timeline {
                id: TimelineId(id),
                measurement,
                source: None,
                tags: tags.into_iter().collect(),
                attributes: BTreeMap::new(),
                seen: None,
            },
            last: last.map(|text| serde_json::json!({"sequence": "1", "text": text}).to_string()),
            unread,
            mentions,
        },
    )
}

fn as_json(items: &[impl serde::Serialize]) -> String {
    let items: Vec<String> = items
        .iter()
        .map(|item| serde_json::to_string(item).expect("JSON"))
        .collect();
    items.join(",")
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(200))]

    #[test]
    fn sent_messages_have_the_form_of_the_api(
        messages in vec((any::<i64>(), option::of(any::<i64>()), any::<bool>()), 0..5),
    ) {
        let of_api: Vec<MessageSent> = messages
            .iter()
            .map(|(sequence, time, is_repeated)| MessageSent {
                sequence: Sequence(*sequence),
                time: time.map(|nanos| Timestamp::from_nanos_clamped(nanos).to_rfc3339()),
                repeated: *is_repeated,
            })
            .collect();
        let messages = messages.into_iter().map(|(sequence, time, is_repeated)| SentMessage {
            sequence,
            time: time.map(Timestamp::from_nanos_clamped),
            is_repeated,
        });
        let sent = Sent {
            feed: TimelineId([0; 16]),
            messages: messages.collect(),
            position: None,
        };
        let mut written = Vec::new();
        sent.write_messages(&mut written);
        prop_assert_eq!(String::from_utf8_lossy(&written), as_json(&of_api));
    }

    #[test]
    fn conversations_have_the_form_of_the_api(conversations in vec(conversation(), 0..4)) {
        let of_api: Vec<Conversation> = conversations
            .iter()
            .map(|conversation| Conversation {
                feed: conversation.member.feed.to_string(),
                kind: conversation.feed.measurement.clone(),
                tags: conversation.feed.tags.iter().cloned().collect(),
                last: conversation.last.clone().map(|last| RawValue::from_string(last).expect("JSON")),
                unread: conversation.unread,
                mentions: conversation.mentions,
                cursor: conversation.member.cursor.map(Sequence),
                muted: conversation.member.is_muted,
            })
            .collect();
        let mut list = Conversations::default();
        list.conversations = conversations;
        let mut written = Vec::new();
        list.write_conversations(&mut written);
        prop_assert_eq!(String::from_utf8_lossy(&written), as_json(&of_api));
    }
}
