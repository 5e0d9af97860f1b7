//! CloudEvents, as the examples of their specification.

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use scoop::prelude::*;
use scoop_http::{CloudEvent, Refusal};
use serde_json::{Value, json};

use crate::recorded::Recorded;

const STRUCTURED: &str = include_str!("../recorded/cloud_event_structured.http");
const BINARY: &str = include_str!("../recorded/cloud_event_binary.http");

#[derive(Debug, PartialEq, Message, Serialize, Deserialize)]
#[message(topic = "com.example.someevent")]
#[serde(rename_all = "camelCase")]
struct Info {
    appinfo_a: String,
    appinfo_b: u64,
    appinfo_c: bool,
}

fn read(text: &'static str) -> Result<CloudEvent, Refusal> {
    let Recorded { headers, body, .. } = Recorded::read(text);
    CloudEvent::from_http(&headers, &body)
}

#[test]
fn recorded_event_of_each_mode_is_the_message() {
    let info = Info { appinfo_a: "abc".into(), appinfo_b: 123, appinfo_c: true };
    for text in [STRUCTURED, BINARY] {
        let event = read(text).unwrap();
        assert_eq!(event.message::<Info>().unwrap(), info);
        assert_eq!(event.unique_key(), "/mycontext C234-1234-1234");
        assert_eq!(event.attributes["time"], "2018-04-05T17:31:00Z");
        assert!(!event.attributes.contains_key("subject"));
    }
    let event = CloudEvent::new("/mycontext", "C234-1234-1234", &info).unwrap();
    let known = read(STRUCTURED).unwrap();
    assert_eq!((&event.kind, &event.data), (&known.kind, &known.data));
}

#[test]
fn event_written_in_each_mode_is_as_recorded() {
    let (structured, recorded) = (read(STRUCTURED).unwrap(), Recorded::read(BINARY));
    let (headers, body) = structured.to_binary().unwrap();
    assert_eq!(headers, recorded.headers);
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), structured.data);

    let mut expected: Value = serde_json::from_slice(&Recorded::read(STRUCTURED).body).unwrap();
    expected.as_object_mut().unwrap().remove("subject");
    assert_eq!(serde_json::to_value(&structured).unwrap(), expected);
}

#[test]
fn attribute_in_a_header_is_percent_encoded() {
    let mut event = CloudEvent::new("/ü", "a \"b\" 100%", &Unit {}).unwrap();
    // The example of the HTTP binding.
    event.attributes.insert("subject".into(), "Euro € 😀".into());
    let (mut headers, body) = event.to_binary().unwrap();
    assert_eq!(headers["ce-subject"], "Euro%20%E2%82%AC%20%F0%9F%98%80");
    assert_eq!(headers["ce-id"], "a%20%22b%22%20100%25");
    assert_eq!(CloudEvent::from_http(&headers, &body).unwrap(), event);
    for (given, read) in [
        ("\"Euro \\\"%e2%82%ac\\\"\"", Some("Euro \"€\"")),
        ("%41", Some("A")),
        ("%C0%A0", None),
        ("\"open\\", None),
    ] {
        headers.insert("ce-subject", HeaderValue::from_static(given));
        match CloudEvent::from_http(&headers, &body) {
            Ok(event) => assert_eq!(event.attributes["subject"].as_str(), read, "{given}"),
            Err(refused) => {
                assert!(read.is_none() && refused.to_string().contains("`ce-subject`"), "{refused}")
            }
        }
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "edges.unit")]
struct Unit {}

#[test]
fn event_that_is_no_message_is_refused_with_the_attribute() {
    let event = |changed: Value| {
        let mut event =
            json!({ "specversion": "1.0", "id": "1", "source": "/", "type": "edges.unit", "data": {} });
        for (name, value) in changed.as_object().unwrap() {
            event[name] = value.clone();
        }
        CloudEvent::from_json(&serde_json::to_vec(&event).unwrap())
    };
    assert!(event(json!({})).unwrap().message::<Unit>().is_ok());
    for (changed, named) in [
        (json!({ "specversion": "0.3" }), "`specversion`"),
        (json!({ "id": "" }), "`id`"),
        (json!({ "source": 7 }), "`source`"),
        (json!({ "source": "/a b" }), "`source`"),
        (json!({ "type": null }), "`type`"),
        (json!({ "datacontenttype": "application/xml" }), "`datacontenttype`"),
        (json!({ "data_base64": "AA==" }), "`data_base64`"),
        (json!({ "Subject": "x" }), "`Subject`"),
        (json!({ "subject": {} }), "`subject`"),
    ] {
        let refused = event(changed).unwrap_err();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert!(refused.to_string().contains(named), "{refused}");
    }
    let refused = event(json!({})).unwrap().message::<Info>().unwrap_err();
    assert!(refused.to_string().contains("`com.example.someevent` is expected"), "{refused}");
    let refused = event(json!({ "type": "com.example.someevent", "data": { "appinfoA": 7 } })).unwrap();
    let refused = refused.message::<Info>().unwrap_err().to_string();
    assert!(refused.starts_with("data, field `appinfoA`: invalid type"), "{refused}");
}

#[test]
fn request_that_is_no_event_is_refused() {
    let refused = |content_type, body| {
        let headers =
            HeaderMap::from_iter([("content-type".parse().unwrap(), HeaderValue::from_static(content_type))]);
        CloudEvent::from_http(&headers, body).unwrap_err().to_string()
    };
    assert_eq!(refused("application/json", b"{}"), "event: missing field `specversion`");
    for content_type in ["application/cloudevents-batch+json", "application/cloudevents+avro"] {
        let text = refused(content_type, b"[]");
        assert_eq!(text, "header `content-type`: `application/cloudevents+json` is expected");
    }
}
