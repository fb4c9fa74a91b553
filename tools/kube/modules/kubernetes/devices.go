package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	deviceplugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

// offerDevices serves devices with these ids to a kubelet, under the name of a resource, until a signal ends it. The
// kubelet finds the socket in its folder plugins_registry. A container that gets the device 2 gets the file that is
// called path and 2, which is the null device: tests see who gets which, not what it does.
func offerDevices(socket, resource, path string, ids []string) int {
	devices := make([]*pluginapi.Device, len(ids))
	for index, id := range ids {
		devices[index] = &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	}
	plugin := deviceplugin.NewDevicePluginStub(devices, socket, resource, false, false)
	plugin.SetAllocFunc(func(asked *pluginapi.AllocateRequest, _ map[string]*pluginapi.Device) (*pluginapi.AllocateResponse, error) {
		answer := &pluginapi.AllocateResponse{}
		for _, container := range asked.ContainerRequests {
			given := &pluginapi.ContainerAllocateResponse{}
			for _, id := range container.DevicesIds {
				given.Devices = append(given.Devices, &pluginapi.DeviceSpec{
					HostPath: "/dev/null", ContainerPath: path + id, Permissions: "rw",
				})
			}
			answer.ContainerResponses = append(answer.ContainerResponses, given)
		}
		return answer, nil
	})
	if err := plugin.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	if err := plugin.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
