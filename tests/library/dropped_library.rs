//! A program that depends on the library, and does not refer to it: the linker drops its sagas.

use sagas::errors::SetupError;
use sagas::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(crate = sagas)]
struct Mailed;

#[derive(Default)]
struct Mailer;

#[saga(crate = sagas)]
#[subscribes(Mailed)]
impl Mailer {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Mailed) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn expected_saga_of_a_dropped_library_is_missing_at_the_start() -> Result<()> {
    let missing = Scoop::builder().in_memory().expects(["mailer", "library-checkout"]).start().await.err();
    let Some(missing) = &missing else { panic!("it started") };
    let mistakes = missing.setup();
    let [SetupError::MissingSaga { name, .. }] = mistakes else { panic!("{missing:?}") };
    assert_eq!(name, "library-checkout");
    let text = mistakes[0].to_string();
    assert!(text.contains("`library-checkout`") && text.contains("use your_library as _;"), "{text}");

    Scoop::builder().in_memory().expects(["mailer"]).start().await?.shutdown().await?;
    Ok(())
}
