"""Plugins, from their entry points to calls of their hooks.

The way of a plugin: *installed* (metadata is read) → *resolved* (a name of a job stands for it) → *loaded* (imported,
checked and constructed) → *hooks* (ready to be called). Only loading runs its code.

The door:

- ``installed.discover() -> Discovered``: all plugins and extensions of the host; broken distributions are data.
- ``resolve.resolve(name, kind, discovered) -> PluginRef``: the plugin behind one name.
- ``resolve.select(spec, discovered) -> tuple[Selected, ...]``: the plugins behind all names in a job.
- ``load.load_component(selected, job_dir=…, import_paths=…) -> Component``: an instance with its settings and hooks;
  ``load.load_named`` resolves the name before.
  ``load.import_class`` and ``contract.implementations`` are the steps of it that need no settings.
- ``hooks.Hooks(components).bind(hook) -> Call``: a hook of all components, or of one, with its wrappers.
- ``launching.launcher_of(use, discovered, job_dir=…) -> JobLauncher``: a launcher whose exceptions name it.
- ``extensions.load_extension(registered, expected)``: a command, client or function of another distribution.
- ``describe.describe(refs, job_dir=…) -> list[Description]``: settings and hooks of plugins, from another process.
- ``listing.plugins_document(discovered)``: ``hostcore plugins --json``, with the conformance reports that plugins ship.
- ``provenance.provenance(ref)``: distribution, version and hash of a plugin's code.
- ``attribution.attribute(error, components)``: the component that an exception came from.
- ``tracing.Trace().of(component)``: a component whose calls are recorded (``--trace-hooks``).
- ``published.how_to_install(kind, name)``: the command that installs a plugin of the project.
- ``errors.PluginError``, ``errors.guarded``: errors of plugins, one line each with the plugin's own traceback.
"""
