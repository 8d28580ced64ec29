//! `push`: an OCI layout into a registry.

use std::path::PathBuf;

use super::registry_args::RegistryArgs;
use super::upload_args::UploadArgs;
use super::{Console, Failure};
use crate::containerdisk::Layout;
use crate::registry::{ImageName, Registry, RegistryError};

/// Push an OCI layout to a registry and print its digest.
///
/// Blobs that the registry has are not sent again. The reference HOST/REPOSITORY@sha256:HEX is printed when
/// the registry has served the image by that digest. TLS is always verified; proxy variables are not read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of the layout, as `sealroot package --output` makes it.
    layout: PathBuf,
    /// Where to: HOST[:PORT]/REPOSITORY:TAG. No registry and no tag is assumed.
    #[arg(value_name = "REFERENCE")]
    image: String,
    #[command(flatten)]
    registry: RegistryArgs,
    /// Take blobs over from this repository of the same registry, where it has
    /// them and the registry can; others are uploaded.
    #[arg(long, value_name = "REPOSITORY", help_heading = "Registry")]
    mount_from: Option<String>,
    #[command(flatten)]
    upload: UploadArgs,
    /// Print what was pushed as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args, console: &Console) -> Result<(), Failure> {
    let image: ImageName = args.image.parse().map_err(RegistryError::from)?;
    image.push_tag().map_err(RegistryError::from)?;
    let layout = Layout::open(&args.layout).map_err(|e| {
        let failure = Failure::from(RegistryError::from(e));
        let inner = args.layout.join("image");
        match inner.join("oci-layout").exists() {
            true => failure.cure(format!("it is a build folder: its layout is {}", inner.display())),
            false => failure,
        }
    })?;
    let connection = args.registry.connection(&image)?;
    let options = args.upload.options(args.mount_from, console);
    let pushed = Registry::open_with(image, connection, options)?.push_layout(&layout, console)?;
    let mounted = match pushed.blobs_mounted {
        0 => String::new(),
        mounted => format!("{mounted} taken over, "),
    };
    console.note(format!(
        "{} blobs uploaded, {mounted}{} there already",
        pushed.blobs_uploaded, pushed.blobs_present
    ));
    if args.json {
        console.json(&pushed);
    } else {
        console.result(format!("{}\n", pushed.reference));
    }
    Ok(())
}
