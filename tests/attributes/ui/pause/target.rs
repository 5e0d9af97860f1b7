#![allow(unused)]
use scoop::prelude::*;

mod pause_of_a_name {
    use super::*;

    async fn stocktaking(scoop: &Scoop) -> Result<()> {
        scoop.operate().pauses().pause("courier").reason("stocktaking").await?;
        Ok(())
    }
}

mod resume_of_a_name {
    use super::*;

    async fn stocktaking(scoop: &Scoop, saga: String) -> Result<()> {
        scoop.operate().pauses().resume(&saga).await?;
        Ok(())
    }
}

mod pause_of_a_saga {
    use super::*;

    struct Courier;

    async fn stocktaking(scoop: &Scoop) -> Result<()> {
        scoop.operate().pauses().pause(Courier).await?;
        Ok(())
    }
}

fn main() {}
