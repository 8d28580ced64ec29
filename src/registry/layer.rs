//! A layer into a registry, and into a layout beside it, while it is made.

use thiserror::Error;

use super::{Finish, Registry, RegistryError};
use crate::containerdisk::{Layer, LayerError, LayerInfo, Sink};
use crate::io::{Interrupted, Task};

/// Why a layer could not be made and pushed.
#[derive(Debug, Error)]
pub enum PushLayerError {
    /// It could not be made.
    #[error(transparent)]
    Layer(LayerError),
    /// The registry did not take it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Stops when the other task does, which counts something else than bytes sent.
struct Stopping<'t>(&'t dyn Task);

impl Task for Stopping<'_> {
    fn advance(&self, _: u64) -> Result<(), Interrupted> {
        self.0.advance(0)
    }
}

impl Registry {
    /// Makes a layer and uploads it in the same pass; `beside` takes it as well. What the registry has lost is made
    /// again, from the frame that holds the first such byte. `task` counts bytes of the tar.
    pub fn push_layer(
        &self,
        layer: &mut Layer<'_>,
        mut beside: Option<&mut dyn Sink>,
        task: &dyn Task,
    ) -> Result<LayerInfo, PushLayerError> {
        let mut upload = self.begin_blob(Box::new(Stopping(task)));
        let mut from = 0;
        loop {
            let made = match beside.as_deref_mut() {
                Some(beside) => layer.write(from, &mut [beside, &mut upload], task),
                None => layer.write(from, &mut [&mut upload], task),
            };
            let wanted = match made {
                Ok(info) => match upload.finish(info.digest)? {
                    Finish::Done(_) => return Ok(info),
                    Finish::From(byte) => byte,
                },
                Err(error @ LayerError::Interrupted(_)) => return Err(PushLayerError::Layer(error)),
                // The layer only sees that the upload has stopped; the upload knows why.
                Err(error) => match upload.resume()? {
                    Some(byte) => byte,
                    None => return Err(PushLayerError::Layer(error)),
                },
            };
            from = layer.frame_at(wanted);
        }
    }
}
