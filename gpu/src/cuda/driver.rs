//! The driver: finding it, compiling for it, memory of a device, and its errors told apart.
use cudarc::driver::sys::{CUdevice_attribute, CUresult};
use cudarc::driver::{
    CudaContext, CudaModule, CudaSlice, CudaStream, DeviceRepr, DriverError, ValidAsZeroBits,
};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use nigh_engine::device::DeviceError;
use std::sync::Arc;

/// The first device and its default stream.
pub struct Driver {
    context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub name: String,
}

/// Any call that should have succeeded on a working device.
pub fn failed(error: DriverError) -> DeviceError {
    DeviceError::Failed(error.to_string())
}

impl Driver {
    /// # Errors
    /// [`DeviceError::NoDriver`], [`DeviceError::NoDevice`].
    pub fn open() -> Result<Driver, DeviceError> {
        // Asked first: a call through a library that is not there panics.
        // SAFETY: loads the library by its well-known names and unloads it; its initialisers have no conditions.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(DeviceError::NoDriver("libcuda.so was not found by the loader".into()));
        }
        let no_device = |error: DriverError| match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { bytes: 0 },
            _ => DeviceError::NoDevice(error.to_string()),
        };
        let context = CudaContext::new(0).map_err(no_device)?;
        let name = context.name().map_err(failed)?;
        Ok(Driver { stream: context.default_stream(), context, name })
    }

    /// Compiles CUDA C for the device.
    ///
    /// # Errors
    /// [`DeviceError::NoCompiler`], [`DeviceError::Kernels`].
    pub fn compile(&self, source: &str, options: Vec<String>) -> Result<Arc<CudaModule>, DeviceError> {
        // SAFETY: as for the driver.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            return Err(DeviceError::NoCompiler("libnvrtc.so was not found by the loader".into()));
        }
        // Without an architecture it is the oldest that the compiler knows, which the driver translates for any newer device.
        let options = CompileOptions { options, name: Some("nigh.cu".into()), ..CompileOptions::default() };
        let code = compile_ptx_with_opts(source, options).map_err(|error| {
            DeviceError::Kernels(match error {
                CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
                other => other.to_string(),
            })
        })?;
        self.context.load_module(code).map_err(|error| DeviceError::Kernels(error.to_string()))
    }

    fn no_room(&self, error: DriverError, bytes: usize) -> DeviceError {
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => DeviceError::OutOfMemory { bytes },
            _ => failed(error),
        }
    }

    /// Memory of `len` zeros.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Failed`].
    pub fn zeroed<T: DeviceRepr + ValidAsZeroBits>(&self, len: usize) -> Result<CudaSlice<T>, DeviceError> {
        self.stream.alloc_zeros(len).map_err(|error| self.no_room(error, len * size_of::<T>()))
    }

    /// A buffer with room for `len`; what it held may be gone.
    ///
    /// # Errors
    /// As [`Self::zeroed`].
    pub fn room<'a, T: DeviceRepr + ValidAsZeroBits>(
        &self,
        buffer: &'a mut Option<CudaSlice<T>>,
        len: usize,
    ) -> Result<&'a mut CudaSlice<T>, DeviceError> {
        if buffer.as_ref().is_none_or(|buffer| buffer.len() < len) {
            // The old one first: both may not fit.
            *buffer = None;
            *buffer = Some(self.zeroed(len.next_power_of_two())?);
        }
        Ok(buffer.as_mut().expect("just made where there was none"))
    }

    /// Sends values to the beginning of a buffer.
    ///
    /// # Errors
    /// As [`Self::zeroed`].
    pub fn send<'a, T: DeviceRepr + ValidAsZeroBits>(
        &self,
        buffer: &'a mut Option<CudaSlice<T>>,
        values: &[T],
    ) -> Result<&'a CudaSlice<T>, DeviceError> {
        let buffer = self.room(buffer, values.len())?;
        self.stream.memcpy_htod(values, buffer).map_err(failed)?;
        // The values are the caller's again when this returns: the driver may copy from pageable memory later.
        self.stream.synchronize().map_err(failed)?;
        Ok(buffer)
    }

    /// The first `len` values of a buffer, once everything before is done.
    ///
    /// # Errors
    /// [`DeviceError::Failed`]: also that of a kernel queued before.
    pub fn fetch(&self, buffer: &CudaSlice<u64>, len: usize) -> Result<Vec<u64>, DeviceError> {
        let mut values = vec![0; len];
        self.stream.memcpy_dtoh(&buffer.slice(..len), &mut values).map_err(failed)?;
        self.stream.synchronize().map_err(failed)?;
        Ok(values)
    }

    /// Clock times width of the memory, two transfers per clock; `None` where the driver no longer tells.
    pub fn peak_bytes_per_s(&self) -> Option<f64> {
        let ask =
            |attribute| self.context.attribute(attribute).ok().filter(|value| *value > 0).map(f64::from);
        let khz = ask(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?;
        let bits = ask(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
        Some(2.0 * khz * 1e3 * bits / 8.0)
    }
}
