"""Compiles kctl's Java classes with the compiler in Spark's jars, without a JDK: `python -m tests.java_classes`.

The class files are stored next to their sources, so that kctl compiles nothing at run time. A test compiles them again
and compares.
"""

import os
from typing import Any

from kctl.jars.java import java_command
from kctl_agent.spark.gateway import JAVA_CLASSES

_JAVA_RELEASE = 8  # any Java since this release loads the class files


def compiled(jvm: Any) -> dict[str, bytes]:
    compiler, files = jvm.org.codehaus.janino.Compiler(), jvm.java.util.HashMap()
    compiler.setTargetVersion(_JAVA_RELEASE)
    compiler.setClassFileCreator(jvm.org.codehaus.commons.compiler.util.resource.MapResourceCreator(files))
    for source in JAVA_CLASSES.rglob("*.java"):
        resource = jvm.org.codehaus.commons.compiler.util.resource.FileResource(jvm.java.io.File(str(source)))
        kind = jvm.java.lang.Class.forName("org.codehaus.commons.compiler.util.resource.Resource")
        resources = jvm.java.lang.reflect.Array.newInstance(kind, 1)
        resources[0] = resource
        compiler.compile(resources)
    return {name: bytes(files[name]) for name in files}


def main() -> None:
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = str(java_command().resolve().parents[1])
    gateway = launch_gateway()
    for name, data in compiled(gateway.jvm).items():
        (JAVA_CLASSES / name).write_bytes(data)
        print(f"{name}: {len(data)} bytes")
    gateway.shutdown()


if __name__ == "__main__":
    main()
