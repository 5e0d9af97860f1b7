//! The entities.

use axum::http::StatusCode;

use crate::shop::{BYTES_MAX, Fill, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn entity_is_found_by_name_and_key_with_state_events_and_commands() {
    let shop = Shop::open().await;
    shop.get("/entities").await.has("No command has decided about an entity.");
    let shop = Shop::with_all_sagas().await;
    for units in 1..=51 {
        shop.scoop.send(Fill { sku: "b&b".into(), units }).await.unwrap().decision().await.unwrap();
    }
    shop.get("/entities").await.has("/entities?name=stock");
    shop.get("/entities?name=stock").await.has("/entities?name=stock&#38;key=b%26b");
    let got = shop.get("/entities?name=stock&key=b%26b").await;
    got.has("version 51").has("&#34;units&#34;: 1326").has("shop.filled").lacks("First page");
    got.has("/entities?name=stock&#38;key=b%26b&#38;after=50").has("aria-label=\"Command of version 50\"");
    let got = shop.get("/entities?name=stock&key=b%26b&after=50").await;
    got.has("aria-label=\"Command of version 51\"").has("First page").lacks("rel=\"next\"");
    shop.get("/entities?name=stock&key=none").await.has("There is no such entity.");
    assert_eq!(shop.get("/entities?name=stock&key=a&after=x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_entities_beyond_a_maximum_are_found_by_the_form() {
    let shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.entity (name, key, version, state)
             SELECT 'entity ' || lpad(n::text, 5, '0'), 'k', 1, '{}' FROM generate_series(1, 1100) n",
        )
        .await;
    let got = shop.get("/entities").await;
    got.has("The first 200 names are shown").has("entity 00200").lacks("entity 00201");
    assert!(got.text.len() <= BYTES_MAX, "{} bytes", got.text.len());
    shop.get("/entities?name=entity+01100&key=k").await.has("version 1");
}

/// JSON of the server may have larger numbers than that of programs.
#[tokio::test(flavor = "multi_thread")]
async fn entity_with_values_that_cannot_be_read_shows_the_others() {
    let shop = Shop::with_all_sagas().await;
    for units in 1..=3 {
        shop.scoop.send(Fill { sku: "bolts".into(), units }).await.unwrap().decision().await.unwrap();
    }
    shop.db
        .execute(
            "UPDATE scoop.entity SET state = '{\"units\": 1e400}' WHERE key = 'bolts';
             UPDATE scoop.message SET payload = '{\"units\": 1e400}' WHERE topic = 'shop.filled' AND payload = '{\"units\": 2}'",
        )
        .await;
    let got = shop.get("/entities?name=stock&key=bolts").await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    assert_eq!(got.text.matches("(not readable: ").count(), 2, "{}", got.text);
    got.has("version 3").has("number out of range").has("&#34;units&#34;: 1").has("&#34;units&#34;: 3");
}
